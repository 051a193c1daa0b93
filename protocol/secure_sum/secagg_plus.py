"""What both sides of secagg-plus share: graph, masks, shares and survivors."""

from __future__ import annotations

import hmac
import struct
from collections.abc import Mapping, Sequence

from wallflower.protocol.errors import MalformedMessageError
from wallflower.protocol.identity.canonical import canonical, digest, name_tag
from wallflower.protocol.secure_sum.backends import SHARE
from wallflower.protocol.secure_sum.context import read_roster, roster_bytes
from wallflower.protocol.secure_sum.keys import TAG_BYTES
from wallflower.protocol.secure_sum.secret_shares import SHARE_BYTES
from wallflower.protocol.wire.secure_sum_pb2 import SurvivorSet

# --- The graph of secagg-plus: a Harary graph on hash-shuffled parties.


def ring_neighbours(order: Sequence[str], position: int, degree: int) -> list[str]:
    """Neighbours of the party at `position`: the nearest `degree`, half each way.

    In the complete graph (degree n − 1, maybe odd) they are all others. The order of
    the list is the order of shares.

    Examples
    --------
    >>> ring_neighbours("abcdef", 0, 2)
    ['b', 'f']
    """
    nodes = len(order)
    if degree >= nodes - 1:
        return [order[(position + step) % nodes] for step in range(1, nodes)]
    half = degree // 2
    ahead = [order[(position + step) % nodes] for step in range(1, half + 1)]
    behind = [order[(position - step) % nodes] for step in range(1, half + 1)]
    return ahead + behind


# --- Masks of secagg-plus: uniform elements of ℤ_m from 32-byte seeds, any m.
#
# HMAC-SHA256 in counter mode, cut into words, with rejection: never ``mod m``, which
# would favour small residues.


_WORD_BYTES = 8
_WORDS = 4


def mask_info(context: bytes, purpose: str) -> bytes:
    """Bind a mask to its cohort and to what it hides: ``self`` or ``pair``."""
    return canonical("wallflower/v1/mask", context, purpose)


def mask_value(seed: bytes, info: bytes, modulus: int) -> int:
    """Expand a seed to one uniform element of ℤ_modulus, modulus ≤ 2^64."""
    keep = (1 << (modulus - 1).bit_length()) - 1
    counter = 0
    while True:
        block = hmac.digest(seed, info + counter.to_bytes(4, "big"), "sha256")
        for index in range(_WORDS):
            start = index * _WORD_BYTES
            word = int.from_bytes(block[start : start + _WORD_BYTES], "big") & keep
            if word < modulus:
                return word
        counter += 1


# --- What a secagg-plus party seals for a neighbour: two shares and its user count.


_USERS = struct.Struct(">I")
BOTH_SHARES = 2 * SHARE_BYTES
PLUS_SEAL_BYTES = BOTH_SHARES + _USERS.size + TAG_BYTES


def share_head(context: bytes) -> bytes:
    """Begin the HKDF info of every seal of a cohort; 32 bytes, to keep infos short."""
    return digest("wallflower/v1/seal", context, SHARE)


def share_info(head: bytes, sender: str, receiver: str, salt: bytes) -> bytes:
    """HKDF info of the seal from one neighbour to another."""
    return head + name_tag(sender) + name_tag(receiver) + salt


def pack(both: bytes, users: int) -> bytes:
    """Write the shares of the self seed and of the mask key, and the user count."""
    return both + _USERS.pack(users)


def unpack(plain: bytes) -> tuple[bytes, int]:
    """Read what `pack` wrote."""
    return plain[:BOTH_SHARES], _USERS.unpack(plain[BOTH_SHARES:])[0]


# --- Who stands in a secagg-plus sum, and what is signed about it.


def summarize_survivors(parties: Mapping[str, int], *, listed: bool) -> SurvivorSet:
    """Sum up parties and their users; with the list where it must be checked."""
    return SurvivorSet(
        parties=len(parties),
        users=sum(parties.values()),
        roster=roster_bytes(parties) if listed else b"",
    )


def read_survivors(survivor_set: SurvivorSet) -> dict[str, int] | None:
    """Return the list if there is one; refuses totals that differ from it."""
    if not survivor_set.roster:
        return None
    roster = read_roster(survivor_set.roster)
    if (
        len(roster) != survivor_set.parties
        or sum(roster.values()) != survivor_set.users
    ):
        raise MalformedMessageError("a list of parties and its totals differ")
    return roster


def confirmation(context: bytes, survivor_set: SurvivorSet) -> bytes:
    """Return the bytes a party signs: these, and no others, are the survivors."""
    return canonical(
        "wallflower/v1/survivors",
        context,
        survivor_set.parties,
        survivor_set.users,
        survivor_set.roster,
    )
