"""Who stands in a secagg-plus sum, and what is signed about it."""

from __future__ import annotations

from collections.abc import Mapping

from wallflower.protocol.errors import MalformedMessageError
from wallflower.protocol.identity.canonical import canonical
from wallflower.protocol.secure_sum.context import read_roster, roster_bytes
from wallflower.protocol.wire.secure_sum_pb2 import SurvivorSet


def summarize_survivors(parties: Mapping[str, int], *, listed: bool) -> SurvivorSet:
    """Sum up parties and their users; with the list where it must be checked."""
    return SurvivorSet(
        parties=len(parties),
        users=sum(parties.values()),
        roster=roster_bytes(parties) if listed else b"",
    )


def read_survivors(standing: SurvivorSet) -> dict[str, int] | None:
    """Give the list if there is one; refuses totals that differ from it."""
    if not standing.roster:
        return None
    roster = read_roster(standing.roster)
    if len(roster) != standing.parties or sum(roster.values()) != standing.users:
        raise MalformedMessageError("a list of parties and its totals differ")
    return roster


def confirmation(context: bytes, standing: SurvivorSet) -> bytes:
    """Give the bytes a party signs: these, and no others, are the survivors."""
    return canonical(
        "wallflower/v1/survivors",
        context,
        standing.parties,
        standing.users,
        standing.roster,
    )
