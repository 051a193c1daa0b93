"""What the server remembers for a whole run, and whose key is whose in a cohort."""

from __future__ import annotations

from wallflower.protocol.errors import UnusableKeyError
from wallflower.strategy.secure_sum.shared_key import SharedKey


class KeyOwners:
    """Whose key is whose: whoever showed it first."""

    def __init__(self) -> None:
        self._owners: dict[bytes, str] = {}

    def note(self, party: str, key: bytes) -> None:
        """Note a party's key; raises UnusableKeyError where it is another's.

        Public keys travel, so that a node can show one it saw elsewhere; members would
        refuse the whole set.
        """
        owner = self._owners.setdefault(key, party)
        if owner != party:
            raise UnusableKeyError(f"{party} shows a key that {owner} showed first")


class ServerKeyring:
    """What the server remembers of a run: public keys only."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.dealt: SharedKey | None = None
        self.wary = False  # dealers were shown to deal wrongly
        self.shuffler = b""  # the public key of the run's shuffler

    def deal(self, dealt: SharedKey) -> None:
        """Seal the cohorts to come under a new key."""
        self.dealt = dealt
