"""What servers that anybody can reach have in common: gRPC server, shuffler, live page."""
