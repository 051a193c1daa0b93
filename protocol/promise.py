"""The guarantee in words that need no mathematics.

(ε, 0)-DP bounds how far any observer's odds between two hypotheses about one person
can move: by a factor of e^ε, whatever else the observer knows. That factor is what the
sentences state, rounded up.
"""

from __future__ import annotations

import math
from fractions import Fraction

from protocol.quantities import round_up

SENTENCE_DELTA = 1e-6
SEES_THE_SUMS = "nobody, the operator included,"
SEES_THE_RESULTS = "nobody who sees the published results"
SEES_THE_DEVICE = "nobody, not even someone who reads all that leaves the device,"


def odds_factor(epsilon: float | Fraction) -> str:
    """e^ε for display, rounded up to two decimals (four digits are no clearer)."""
    # One step of a double upwards pays for the rounding of exp itself.
    return round_up(math.nextafter(math.exp(float(epsilon)), math.inf), 2)


def pure_sentence(epsilon: Fraction, observer: str, condition: str) -> str:
    """Say what (ε, 0)-DP means to one person."""
    return (
        f"Whatever a person's outcome was, {observer} can shift the odds of any guess "
        f"about it by more than a factor of {odds_factor(epsilon)} "
        f"(ε = {round_up(epsilon)}){condition}."
    )


def approximate_sentence(epsilon: float, observer: str, condition: str) -> str:
    """Say what an (ε, 10⁻⁶) equivalent means to one person."""
    return (
        f"Whatever a person's outcome was, {observer} can shift the odds of any guess "
        f"about it by more than a factor of {odds_factor(epsilon)}, except with a "
        f"chance of one in a million (ε = {round_up(epsilon)} at δ = 10⁻⁶){condition}."
    )


def floor_condition(cohort_size: int, honest_floor: int) -> str:
    """Who must be honest in the distributed model."""
    if honest_floor == cohort_size:
        return f", as long as all {cohort_size} people of a group answer honestly"
    return (
        f", as long as {honest_floor} of the {cohort_size} people of a group "
        "answer honestly"
    )
