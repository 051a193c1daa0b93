"""The server's side: cohorts, secure sum, analyzer, elimination, journal."""

import protocol.tls  # noqa: F401 (before gRPC is loaded)
