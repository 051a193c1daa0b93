"""The server's side: cohorts, secure sum, analyzer, elimination, journal."""
