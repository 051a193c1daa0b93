"""The gRPC server: a gRPC service on which nodes attend a run."""
