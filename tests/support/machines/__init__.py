"""Exhaustive exploration of the secure-sum machines: ``make check-machines``."""
