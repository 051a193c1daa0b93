"""The test behind the top-two prototype, on every path of two small arms."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from scipy import stats

from benchmarks import top_two
from benchmarks.top_two import UnevenPairs
from wallflower.strategy.bandit.schedule import Schedule
from wallflower.strategy.bandit.spec import PolicySpec

SPEC = PolicySpec(
    policy="elimination",
    arms=2,
    horizon=60,
    mechanism="non-private",
    epsilon=Fraction(1),
    failure_probability=Fraction(1, 2),
    ratio=Fraction(3, 2),
    first_batch=1,
).resolved()
SIZES = tuple(Schedule(Fraction(3, 2), 1).size(number) for number in (1, 2, 3))
PAIRS = [(0.1, 0.1), (0.3, 0.3), (0.5, 0.5), (0.5, 0.6), (0.9, 0.9), (0.97, 0.97)]

Sums = tuple[int, ...]
Falls = Callable[[Sums, Sums], bool]


def falls_of(pairs: UnevenPairs) -> Falls:
    """Test all sums of one to three cohorts of both arms."""
    known: dict[tuple[Sums, Sums], bool] = {}
    for one, other in itertools.product((1, 2, 3), repeat=2):
        ranges = [range(size + 1) for size in (*SIZES[:one], *SIZES[:other])]
        rows = np.array(list(itertools.product(*ranges)), dtype=float)
        falls = pairs.falls(one, other, rows[:, :one], rows[:, one:])
        for row, fell in zip(rows.astype(int).tolist(), falls.tolist(), strict=True):
            known[tuple(row[:one]), tuple(row[one:])] = fell
    return lambda leading, trailing: known[leading, trailing]


def worst_order(falls: Falls, worse: float, better: float) -> float:
    """P(the better arm ever falls) if an enemy chooses who is asked next, exactly.

    It sees all sums; three cohorts of each arm are the most.
    """

    @cache
    def outcomes(past: Sums, mean: float) -> list[tuple[float, Sums]]:
        size = SIZES[len(past)]
        chances = stats.binom.pmf(np.arange(size + 1), size, mean).tolist()
        return [(p, (*past, total)) for total, p in enumerate(chances)]

    @cache
    def chance(leading: Sums, trailing: Sums) -> float:
        if leading and trailing and falls(leading, trailing):
            return 1.0
        asked = [0.0]
        if len(leading) < len(SIZES):
            asked.append(
                sum(p * chance(x, trailing) for p, x in outcomes(leading, worse))
            )
        if len(trailing) < len(SIZES):
            asked.append(
                sum(p * chance(leading, x) for p, x in outcomes(trailing, better))
            )
        return max(asked)

    return chance((), ())


def test_an_enemy_who_orders_the_cohorts_by_their_sums_gains_nothing() -> None:
    falls = falls_of(UnevenPairs(SPEC))
    rates = [worst_order(falls, *pair) for pair in PAIRS]
    assert 0 < max(rates) <= float(SPEC.failure_probability)


@pytest.mark.slow  # thousands of simulated runs
def test_lags_that_weigh_more_than_one_together_break_the_promise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(top_two, "LAGS", dict.fromkeys(range(-3, 4), 8.0))
    falls = falls_of(UnevenPairs(SPEC))
    rates = [worst_order(falls, *pair) for pair in PAIRS]
    assert max(rates) > float(SPEC.failure_probability)


def test_lags_weigh_at_most_one_together() -> None:
    assert sum(top_two.LAGS.values()) <= 1
