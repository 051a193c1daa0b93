"""Tests; the first import is what every entry of the program imports first."""

import protocol.tls  # noqa: F401 (before a test loads gRPC)
