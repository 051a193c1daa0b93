"""Reward models, logged rewards, repeatable rewards."""
