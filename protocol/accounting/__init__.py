"""Exact accounting: divergences summed on ℤ with bounded tails."""
