"""What servers that anybody can reach have in common: desk, shuffler, live page."""
