"""The shuffler: an independent party that forgets who sent what.

It depends on `wallflower.protocol` alone and shares nothing with the server it serves.
"""
