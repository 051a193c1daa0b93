"""A node's half of a secure sum, by the name of the back-end."""
