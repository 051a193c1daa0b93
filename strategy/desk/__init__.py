"""The desk: a gRPC service on which nodes attend a run."""
