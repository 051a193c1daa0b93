"""A node's side of the gRPC server."""
