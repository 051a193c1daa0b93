"""The server's side: cohorts, secure sum, analyzer, elimination, journal."""

import wallflower.protocol.identity.tls  # noqa: F401 (before gRPC is loaded)
