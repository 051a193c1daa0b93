"""Put nodes together: from a home on disk, or for an engine."""
