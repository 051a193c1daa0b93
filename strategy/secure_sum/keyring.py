"""Keys that parties announced for a whole run, so that none is asked for twice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from wallflower.protocol.errors import UnusableKeyError
from wallflower.strategy.secure_sum.dealt import DealtKey


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


@dataclass(frozen=True, slots=True)
class Deposits:
    """Where nodes take their messages themselves, and what lets them in there."""

    address: str
    authority: bytes
    token: bytes

    def __repr__(self) -> str:
        """Show no token."""
        return f"Deposits({self.address!r})"


class ServerKeyring:
    """What the server remembers of a run's parties: public keys only.

    A node that restarts has lost its key; when it fails a tally the server forgets the
    old one and asks anew in the next cohort.
    """

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self._keys: dict[str, bytes] = {}
        self.owners = KeyOwners()
        self.dealt: DealtKey | None = None
        self.wary = False  # dealers were shown to deal wrongly
        self.shuffler = b""  # the public key of the run's shuffler
        self.deposits: Deposits | None = None  # None: the server carries messages

    def deal(self, dealt: DealtKey) -> None:
        """Seal the cohorts to come under a new key."""
        self.dealt = dealt

    def known(self, parties: Sequence[str]) -> dict[str, bytes]:
        """Give the serialized PartyKeys known of these parties."""
        return {party: self._keys[party] for party in parties if party in self._keys}

    def remember(self, party: str, key: bytes) -> None:
        """Keep a key announced for the whole run."""
        self._keys[party] = key

    def forget(self, party: str) -> None:
        """Drop a key that does not work any more."""
        self._keys.pop(party, None)
