"""What both sides of a secure sum agree on: stages, sizes, keys, seals."""
