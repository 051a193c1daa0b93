"""A plan's promise in one sentence that needs no mathematics."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from protocol.accounting import Bound
from protocol.guarantee import Guarantee
from protocol.promise import (
    SEES_THE_DEVICE,
    SEES_THE_RESULTS,
    SEES_THE_SUMS,
    approximate_sentence,
    pure_sentence,
)

_OBSERVERS = {
    "distributed": SEES_THE_SUMS,
    "server": SEES_THE_RESULTS,
    "nobody": SEES_THE_DEVICE,
}


def percent(part: Fraction) -> str:
    """Write a part of one as a percentage, rounded down where it is not whole."""
    return f"{float(int(part * 1000)) / 10:g} %"


def promise_sentence(
    guarantee: Guarantee,
    participations: int,
    floor: Fraction,
    bounds: Sequence[Bound],
) -> str:
    """Say what one person is promised for the whole experiment.

    `bounds` are those of `returning_users`, best first; a pure promise is stated
    without δ although a bound with δ may be a little smaller.
    """
    if guarantee.epsilon is None:
        return guarantee.sentence
    observer = _OBSERVERS[guarantee.trust]
    condition = _condition(guarantee, floor)
    if participations > 1:
        condition += f", even for somebody who takes part {participations} times"
    if guarantee.kind == "pure":
        return pure_sentence(participations * guarantee.epsilon, observer, condition)
    return approximate_sentence(bounds[0].epsilon, observer, condition)


def _condition(guarantee: Guarantee, floor: Fraction) -> str:
    if guarantee.trust == "server":
        return ", if the server that sees every outcome is trusted"
    if guarantee.trust == "nobody":
        return ""
    if floor == 1:
        return ", as long as everybody in each group answers honestly"
    return (
        f", as long as at least {percent(floor)} of the people in each group answer "
        "honestly"
    )
