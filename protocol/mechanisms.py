"""Import every mechanism so that the registry is full."""
