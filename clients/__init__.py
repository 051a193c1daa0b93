"""A user's side: reward source, randomizer, secure sum, budget ledger."""

import wallflower.protocol.identity.tls  # noqa: F401 (before gRPC is loaded)
