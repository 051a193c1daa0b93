"""The gRPC server: a gRPC service to which the nodes of a run connect."""
