"""A user's side: reward source, randomizer, secure sum, budget ledger."""
