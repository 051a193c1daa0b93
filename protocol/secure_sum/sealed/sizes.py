"""How many deal, and how many of them must be accepted, for a stated threat.

Committee c and threshold t are `threat.committee_size`. A *dealer* is a member that
also deals. The key is safe if one accepted dealer is honest.

Semi-honest server: who answers is not its choice. As many deal as cannot all collude: a
with P[a staying nodes, drawn, all colluding] ≤ 2^-σ, where those who vanish may all be
honest. The first a members of the draw are asked; for every one that is silent the next
one is. Up to 64 nodes nothing is drawn: ⌈γn⌉ + 1 deal.

Lying server: it chooses who seems to have vanished, so that every subset of the drawn
may come to stand. All members deal, and the accepted must outnumber the colluders that
can be among the drawn at all, except with probability 2^-(σ + grinding). It also
chooses among whom a key is dealt: nodes seal under it only if the dealing was for as
many colluders as their cohort may have (`as_withstood`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from wallflower.protocol.secure_sum.tails import Draw
from wallflower.protocol.secure_sum.threat import COMPLETE_UP_TO, Threat, committee_size

_ONE = Fraction(1)
_TOO_FEW = 0.001


@dataclass(frozen=True, slots=True)
class DealingSizes:
    """Members c, threshold t, dealers asked at first, dealers that must be accepted."""

    members: int
    threshold: int
    dealers: int
    accepted: int


@lru_cache(maxsize=4096)
def dealing_sizes(threat: Threat, nodes: int) -> DealingSizes:
    """Sizes of a dealing among `nodes` nodes; raises InputError like committee_size."""
    sizes = committee_size(threat, nodes)
    members, threshold = sizes.helpers, sizes.threshold
    colluding = min(threat.corrupt_nodes(nodes), members)
    drawn = nodes > COMPLETE_UP_TO and members < nodes
    if threat.malicious_server:
        if drawn:
            draw = Draw(nodes, threat.corrupt_nodes(nodes), members)
            colluding = (
                draw.smallest_safe_threshold(_ONE, threat.drawn_privacy_bits) - 1
            )
        return DealingSizes(members, threshold, members, max(1, colluding + 1))
    if nodes <= 3:
        return DealingSizes(members, threshold, members, members)
    accepted = _never_all(threat, nodes, members) if drawn else colluding + 1
    return DealingSizes(members, threshold, accepted, accepted)


def as_withstood(threat: Threat, dealt: int, cohort: int) -> bool:
    """Return whether a dealing among `dealt` nodes is for all colluders of a cohort."""
    return threat.corrupt_nodes(dealt) >= threat.corrupt_nodes(cohort)


def first_asked(members: int, threshold: int, dropout: Fraction) -> int:
    """Return how many of c members to ask for an opening before the others.

    The least number of which t answer but once in 1,000 sums, at the stated dropout.
    Nothing rests on it: where t did not answer, the others are asked.
    """
    stays = float(1 - dropout)
    for count in range(threshold + 1, members):
        too_few = sum(
            math.comb(count, there) * stays**there * (1 - stays) ** (count - there)
            for there in range(threshold)
        )
        if too_few <= _TOO_FEW:
            return count
    return members


def _never_all(threat: Threat, nodes: int, members: int) -> int:
    """Smallest a ≤ c such that a drawn nodes that stay are rarely all colluding."""
    staying = nodes - math.ceil(threat.dropout * nodes)
    colluding = min(threat.corrupt_nodes(nodes), staying)
    for count in range(1, members):
        draw = Draw(staying, colluding, count)
        if draw.rarely_all(_ONE, threat.drawn_privacy_bits):
            return count
    return members
