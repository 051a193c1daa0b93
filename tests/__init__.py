"""Tests; the first import is what every entry of the program imports first."""

import wallflower.protocol.identity.tls  # noqa: F401 (before a test loads gRPC)
