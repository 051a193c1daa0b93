"""What servers that anybody can reach share: gRPC server, shuffler, live page."""
