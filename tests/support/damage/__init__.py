"""Damaged run directories: what was done to them, and what every command says then."""
