"""Sums through a shuffler: what users send, and what the shuffled batch of it tells."""
