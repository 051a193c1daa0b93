"""Taking the masks off a secagg-plus sum.

Of a node in the sum the own seed is rebuilt, of a node that vanished the mask key;
clients see to it that never both are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from wallflower.protocol.errors import CohortVoidError, ProtocolError
from wallflower.protocol.secure_sum.keys import pair_key
from wallflower.protocol.secure_sum.secagg_plus import mask_info, mask_value
from wallflower.protocol.secure_sum.secret_shares import recover_secret

Shares = dict[str, dict[int, bytes]]  # whose secret → holder's position → share


TOO_FEW_SHARES = "too-few-shares"


class UnmaskingError(CohortVoidError):
    """A party's secret cannot be rebuilt."""

    def __init__(self, party: str, code: str, detail: str) -> None:
        super().__init__(code, detail)
        self.party = party


@dataclass(frozen=True, slots=True)
class Unmasking:
    """All that is public at the end, and the shares the neighbours gave."""

    context: bytes
    modulus: int
    threshold: int
    masked: Mapping[str, int]
    dropped: Sequence[str]
    neighbours: Mapping[str, Sequence[str]]
    mask_keys: Mapping[str, bytes]

    def total(self, self_shares: Shares, mask_shares: Shares) -> tuple[int, set[str]]:
        """Return Σ mod m and the nodes whose shares were wrong.

        Raises UnmaskingError where a secret cannot be rebuilt.
        """
        wrong: set[str] = set()
        total = sum(self.masked.values())
        info = mask_info(self.context, "self")
        for party in self.masked:
            seed = self._rebuild(party, self_shares, wrong)
            total -= mask_value(seed, info, self.modulus)
        for party in self.dropped:
            total -= self._pair_masks(party, self._rebuild(party, mask_shares, wrong))
        return total % self.modulus, wrong

    def _rebuild(self, party: str, shares: Shares, wrong: set[str]) -> bytes:
        held = shares.get(party, {})
        if len(held) < self.threshold:
            raise UnmaskingError(
                party,
                TOO_FEW_SHARES,
                f"{len(held)} neighbours of {party} answered; {self.threshold} needed",
            )
        try:
            secret, bad = recover_secret(held, self.threshold)
        except ProtocolError:
            raise UnmaskingError(
                party,
                "inconsistent-shares",
                f"the shares of {party} contradict each other; no sum can be believed",
            ) from None
        wrong.update(self.neighbours[party][position - 1] for position in bad)
        return secret

    def _pair_masks(self, party: str, secret: bytes) -> int:
        """Return what the survivors' masks with a vanished node add up to."""
        private = X25519PrivateKey.from_private_bytes(secret)
        public = private.public_key().public_bytes_raw()
        if public != self.mask_keys[party]:
            raise UnmaskingError(
                party,
                "inconsistent-shares",
                f"{party} shared a mask key not its own",
            )
        info = mask_info(self.context, "pair")
        total = 0
        for neighbour in self.neighbours[party]:
            if neighbour in self.masked:
                theirs = self.mask_keys[neighbour]
                seed = pair_key(private, public, theirs, b"mask")
                mask = mask_value(seed, info, self.modulus)
                total += mask if neighbour < party else -mask
        return total
