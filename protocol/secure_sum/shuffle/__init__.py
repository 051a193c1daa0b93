"""Sums through a shuffler: what users send, and what the heap of it tells."""
