"""Mechanisms, what they promise, and the sentences that say so."""
