"""Sealed sums: threshold ElGamal in the exponent, dealt by the nodes themselves."""
