"""A node's keys for the secure sums of one run.

With `reuse` the node has one X25519 key for the run and keeps what it agreed with each
peer, so a node that comes back pays no key agreement again; every cohort's keys are
derived from it one way. Forward secrecy is then per run: whoever takes the node's
memory while the run lasts can open what was sealed for it in that run. Without `reuse`
every cohort has a key of its own that is forgotten with it.
"""

from __future__ import annotations

from collections.abc import Set
from contextlib import suppress
from dataclasses import dataclass
from sys import intern
from typing import NamedTuple, Protocol

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from wallflower.protocol.errors import RefusalError
from wallflower.protocol.refusals import RefusalCode
from wallflower.protocol.secure_sum.keys import pair_key
from wallflower.protocol.secure_sum.threat import Threat

_MOST_PAIRS = 2**17


@dataclass(frozen=True, slots=True, repr=False)
class OwnKey:
    """An X25519 key pair; `whole_run` if it outlives its cohort."""

    private: X25519PrivateKey
    public: bytes
    whole_run: bool

    @classmethod
    def generate(cls, *, whole_run: bool) -> OwnKey:
        """Make a key from the operating system's randomness."""
        return cls.of(X25519PrivateKey.generate(), whole_run=whole_run)

    @classmethod
    def of(cls, private: X25519PrivateKey, *, whole_run: bool) -> OwnKey:
        """Take a private key."""
        return cls(private, private.public_key().public_bytes_raw(), whole_run)


class VerifiedDealing(NamedTuple):
    """A key that enough enrolled dealers signed for, and among whom it was dealt."""

    key: bytes
    nodes: Set[str]
    threat: Threat


class _KeyShares(Protocol):
    """What a keyring needs of a store of secrets; a dictionary has it."""

    def get(self, name: str, /) -> bytes | None: ...

    def __setitem__(self, name: str, secret: bytes, /) -> None: ...

    def __delitem__(self, name: str, /) -> None: ...


class _Secrets(dict[str, bytes]):
    """Secrets that live as long as the process; none is ever shown."""

    def __repr__(self) -> str:
        return f"{len(self)} secrets"


class ClientKeyring:
    """Own keys, agreed pair keys, and cohorts already answered.

    `key_shares` holds this node's shares of the keys that sums of the run are sealed
    under, by dealing: in memory by default, in the node's own sealed store where every
    message may reach a new process (`clients.host.assemble`). A share is written before
    the member says that it holds a good one, and deleted when the dealing is closed.
    """

    def __init__(
        self,
        run_id: str,
        *,
        reuse: bool = True,
        key_shares: _KeyShares | None = None,
    ) -> None:
        self.run_id = run_id
        self.reuse = reuse
        self.key_shares = _Secrets() if key_shares is None else key_shares
        self.verified_dealings: dict[bytes, VerifiedDealing] = {}  # by name
        # What was asked of this node's shares, and the key that they add up to.
        self.opening_keys: dict[str, tuple[object, tuple[int, bytes]]] = {}
        self._run_key: OwnKey | None = None
        self._pairs: dict[bytes, bytes] = {}
        self._claimed: set[str] = set()

    def __repr__(self) -> str:
        return f"ClientKeyring({self.run_id!r}, reuse={self.reuse})"

    def claim(self, cohort_id: str) -> None:
        """Take part in a cohort; refused the second time."""
        if cohort_id in self._claimed:
            raise RefusalError(
                RefusalCode.COHORT_ALREADY_ANSWERED,
                f"cohort {cohort_id} had its one answer",
            )
        self._claimed.add(intern(cohort_id))

    def forget_dealing(self, dealing_id: str) -> None:
        """Erase this node's share of a key: the run is over, or has another one."""
        with suppress(KeyError):
            del self.key_shares[dealing_id]
        self.opening_keys.pop(dealing_id, None)

    def own_key(self) -> OwnKey:
        """Return the run's key, or a new one for a single cohort."""
        if not self.reuse:
            return OwnKey.generate(whole_run=False)
        if self._run_key is None:
            self._run_key = OwnKey.generate(whole_run=True)
        return self._run_key

    def adopt(self, key: OwnKey) -> None:
        """Take over the run's key from a session restored in a new process."""
        if self.reuse and key.whole_run and self._run_key is None:
            self._run_key = key

    def pair(self, own: OwnKey, theirs: bytes) -> bytes:
        """Agree with a peer's key, or remember what was agreed."""
        if not own.whole_run:
            return pair_key(own.private, own.public, theirs, b"seal")
        agreed = self._pairs.get(theirs)
        if agreed is None:
            if len(self._pairs) >= _MOST_PAIRS:
                self._pairs.clear()
            agreed = pair_key(own.private, own.public, theirs, b"seal")
            self._pairs[theirs] = agreed
        return agreed
