"""A node: answers requests for its users, on their terms."""
