"""The peer by shuffled bits: as private as it says, and nobody is asked under it."""

from __future__ import annotations

import itertools
from fractions import Fraction
from math import factorial

import pytest

from tests.wallflower.planning.test_plan import planned
from wallflower.protocol.cohort import check_pairing
from wallflower.protocol.errors import InputError
from wallflower.protocol.privacy.binary_shuffled import (
    PRIVACY_DELTA,
    coins_for,
    hockey_stick,
)
from wallflower.protocol.privacy.mechanism import mechanism_named
from wallflower.regret.report import guarantee_of
from wallflower.strategy.bandit.spec import PolicySpec


def exact_delta(coins: int, factor: Fraction) -> Fraction:
    """Σ max(0, P(x) − factor · P(x − 1)), in rationals over one denominator."""
    row = itertools.accumulate(
        range(1, coins + 1), lambda mass, x: mass * (coins + 1 - x) // x, initial=1
    )
    masses = [0, *row, 0]
    above, below = factor.as_integer_ratio()
    terms = (below * now - above * last for last, now in itertools.pairwise(masses))
    return Fraction(sum(term for term in terms if term > 0), below << coins)


@pytest.mark.parametrize("epsilon", ["0.1", "0.5", "1"])
def test_no_coin_is_missing_and_none_too_many(epsilon: str) -> None:
    level = Fraction(epsilon)
    coins = coins_for(level, PRIVACY_DELTA)
    # e^ε from below, to 30 digits: what it allows is no less than it is.
    factor = sum((level**k / factorial(k) for k in range(30)), Fraction(0))
    assert exact_delta(coins, factor) <= PRIVACY_DELTA < exact_delta(coins - 2, factor)
    assert hockey_stick(coins, float(level)) == pytest.approx(
        float(exact_delta(coins, factor)), rel=1e-6
    )


def test_its_promise_has_the_delta_of_the_coins() -> None:
    cohort = mechanism_named("shuffle-binary", Fraction(1)).for_cohort(
        100, 100, Fraction(1, 1000)
    )
    assert cohort.guarantee().privacy_delta == Fraction(1, 10**6)
    spec = PolicySpec("elimination", 2, 1000, "shuffle-binary", Fraction(1))
    told = guarantee_of(spec.resolved())
    assert "δ = 10⁻⁶" in told["sentence"]


@pytest.mark.parametrize("backend", ["secagg-plus", "sealed", "shuffle"])
def test_nobody_is_asked_under_it(backend: str) -> None:
    with pytest.raises(InputError):
        check_pairing("shuffle-binary", backend)


def test_nothing_is_planned_with_it() -> None:
    with pytest.raises(InputError, match="only simulated"):
        planned(mechanism="shuffle-binary")
