"""A user's side: reward source, randomizer, secure sum, budget ledger."""

import protocol.tls  # noqa: F401 (before gRPC is loaded)
