"""Keys that parties announced for a whole run, so that none is asked for twice."""

from __future__ import annotations

from collections.abc import Sequence


class ServerKeyring:
    """What the server remembers of a run's parties: public keys only.

    A node that restarts has lost its key; when it fails a tally the server forgets the
    old one and asks anew in the next cohort.
    """

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self._keys: dict[str, bytes] = {}

    def known(self, parties: Sequence[str]) -> dict[str, bytes]:
        """Give the serialized PartyKeys known of these parties."""
        return {party: self._keys[party] for party in parties if party in self._keys}

    def remember(self, party: str, key: bytes) -> None:
        """Keep a key announced for the whole run."""
        self._keys[party] = key

    def forget(self, party: str) -> None:
        """Drop a key that does not work any more."""
        self._keys.pop(party, None)
