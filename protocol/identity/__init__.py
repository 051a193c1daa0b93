"""Who a node is, and how it proves it."""
