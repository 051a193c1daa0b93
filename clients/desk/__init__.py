"""A node's side of the desk."""
