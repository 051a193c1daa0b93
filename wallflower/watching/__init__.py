"""The live page: runs as their records and events tell them, in a browser."""
