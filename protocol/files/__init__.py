"""What is read from and written to disk on both sides."""
