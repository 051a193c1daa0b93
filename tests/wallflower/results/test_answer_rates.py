"""The test of answer rates: one level for the whole run, and finds what differs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest
from scipy import stats

from wallflower.results.cohorts import (
    ALARM,
    TILTS,
    CohortRow,
    Stratum,
    answer_rates,
    homogeneity,
)


def row(
    number: int, arm: str, nodes_lost: int = 0, *, attempt: int = 1, void: bool = False
) -> CohortRow:
    """A cohort of 40 nodes with 10 people each."""
    nodes = 0 if void else 40 - nodes_lost
    return CohortRow(
        cohort=f"r{number}-{arm}-{attempt}",
        round=number,
        batch=number,
        arm=arm,
        attempt=attempt,
        state="void" if void else "summed",
        why="quorum-not-met" if void else "",
        invited=400,
        returned=0,
        answered=10 * nodes,
        nodes=40,
        nodes_in_sum=nodes,
        in_sum=10 * nodes,
        honest_floor=300,
        quorum=320,
        losses={},
        findings=(),
    )


def test_rounds_are_compared_within_themselves_only() -> None:
    # Round 2 went badly for everybody; arm c was out by then.
    strata = [
        {"a": (100, 2), "b": (100, 2), "c": (100, 2)},
        {"a": (100, 50), "b": (100, 50)},
    ]
    assert homogeneity("nodes", strata, 3).p_value == 1.0


def test_an_arm_that_loses_more_is_named_with_what_was_expected() -> None:
    strata = [{"a": (100, 1), "b": (100, 1), "c": (100, 28)}]
    found = homogeneity("people", strata, 3)
    assert found.arm == "c"
    assert (found.arm_lost, found.expected) == (28, 10.0)
    assert found.p_value < ALARM


def test_an_arm_that_loses_nobody_among_losers_is_found_too() -> None:
    strata = [{"a": (200, 40), "b": (200, 40), "c": (200, 0)}]
    found = homogeneity("people", strata, 3)
    assert (found.arm, found.p_value < ALARM) == ("c", True)


def test_small_differences_add_up_over_rounds() -> None:
    one: Stratum = {"a": (400, 30), "b": (400, 18)}
    assert homogeneity("people", [one], 2).p_value > 0.1
    assert homogeneity("people", [one] * 16, 2).p_value < ALARM


def test_a_difference_that_was_found_stays_found() -> None:
    bad: Stratum = {"a": (100, 0), "b": (100, 30)}
    good: Stratum = {"a": (100, 15), "b": (100, 15)}
    found = homogeneity("nodes", [bad], 2).p_value
    assert homogeneity("nodes", [bad, *[good] * 9], 2).p_value <= found < ALARM


@pytest.mark.parametrize("losses", [1, 4, 9, 14])
def test_a_factor_has_a_mean_of_at_most_one(losses: int) -> None:
    """All ways to spread losses over arms of 5, 4 and 6, weighed exactly.

    The average over arms and tilts after one round is an e-value: its mean is at most
    one, so P[p ≤ x] ≤ x for every x.
    """
    sizes = {"a": 5, "b": 4, "c": 6}
    places = [arm for arm, size in sizes.items() for _ in range(size)]
    total, ways = 0.0, 0
    for way in itertools.combinations(range(15), losses):
        lost = {arm: sum(places[one] == arm for one in way) for arm in sizes}
        table = {arm: (size, lost[arm]) for arm, size in sizes.items()}
        total += average_factor(table)
        ways += 1
    assert total / ways <= 1.0


def average_factor(stratum: Stratum) -> float:
    """The mean over arms and tilts, written out from the module's formula."""
    asked = sum(units for units, _ in stratum.values())
    lost = sum(gone for _, gone in stratum.values())
    factors = []
    for units, gone in stratum.values():
        for tilt in TILTS:
            up, down = math.expm1(tilt), math.expm1(-tilt)
            bound = min(
                (1 + lost / asked * up) ** units,
                (1 + units / asked * up) ** lost,
                math.exp(tilt * units) * (1 + units / asked * down) ** (asked - lost),
            )
            factors.append(math.exp(tilt * gone) / bound)
    expected = max(1.0, sum(factors) / len(factors))
    found = homogeneity("nodes", [stratum], len(stratum)).p_value
    assert 1 / found == pytest.approx(expected)
    return sum(factors) / len(factors)


def healthy_run(
    generator: np.random.Generator, *, together: bool
) -> Sequence[CohortRow]:
    """Twelve rounds; arms fall now and then; nodes vanish whatever they were shown."""
    arms, rows = list("abcd"), []
    for number in range(1, 13):
        rate = generator.uniform(0.02, 0.2)
        gone = int(generator.binomial(40, rate))
        for arm in arms:
            own = gone if together else int(generator.binomial(40, rate))
            void = generator.random() < 0.05
            if void:
                rows.append(row(number, arm, void=True))
            rows.append(row(number, arm, own, attempt=1 + void))
        if len(arms) > 2 and generator.random() < 0.15:
            arms.remove(str(generator.choice(arms)))
    return rows


@pytest.mark.parametrize("together", [True, False])
def test_a_healthy_run_ever_alarms_no_more_often_than_stated(together: bool) -> None:
    """2,000 runs of twelve looks, at the level of 5 %; a look never undoes an alarm.

    The upper end of Clopper–Pearson at 99.9 % must lie below the level: were the level
    right and no more, this would fail nearly always; the test has room to spare.
    """
    level, generator = 0.05, np.random.default_rng(21)
    alarms = 0
    for _ in range(2_000):
        rows = healthy_run(generator, together=together)
        alarms += answer_rates(rows, 12, 4).p_value < level
    upper = stats.binomtest(alarms, 2_000).proportion_ci(0.998, method="exact").high
    assert upper <= level


def test_looks_in_between_change_nothing() -> None:
    """The p-value never rises: an alarm seen once is still there at the end."""
    rows = healthy_run(np.random.default_rng(5), together=False)
    seen = [answer_rates(rows, looked, 4).p_value for looked in range(13)]
    assert seen == sorted(seen, reverse=True)


def test_a_round_under_way_is_not_looked_at() -> None:
    rows = [row(1, "a"), row(1, "b"), row(2, "a", 30)]
    assert answer_rates(rows, 1, 2).tests[1].lost == 0
    assert answer_rates(rows, 2, 2).tests[1].lost == 30


def test_attempts_are_compared_with_attempts_of_the_same_number() -> None:
    # An arm whose first cohort was void has a second one; others have none.
    rows = [
        row(number, arm, attempt=attempt, void=void)
        for number in range(1, 20)
        for arm, attempt, void in (("a", 1, True), ("a", 2, False), ("b", 1, False))
    ]
    (cohorts, _, _) = answer_rates(rows, 20, 2).tests
    assert (cohorts.asked, cohorts.lost, cohorts.expected) == (57, 19, 9.5)
    assert cohorts.p_value < ALARM


def test_where_nobody_is_lost_nothing_differs() -> None:
    found = homogeneity("people", [{"a": (10, 0), "b": (10, 0)}], 2)
    assert (found.p_value, found.arm) == (1.0, None)
