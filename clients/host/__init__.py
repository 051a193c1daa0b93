"""Build nodes: from a home on disk, or for an engine."""
