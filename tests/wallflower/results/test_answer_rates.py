"""The exact test of answer rates: right level, finds what differs, exact on small."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from wallflower.results.answer_rates import ALARM, Stratum, homogeneity


def test_two_arms_of_one_round_get_twice_the_smaller_tail_for_each() -> None:
    table = {"a": (12, 7), "b": (9, 1)}
    tail = stats.fisher_exact(np.array([[7, 5], [1, 8]]), alternative="greater").pvalue
    found = homogeneity("nodes", [table])
    assert found.p_value == pytest.approx(min(1.0, 2 * 2 * tail))


def test_rounds_are_compared_within_themselves_only() -> None:
    # Round 2 went badly for everybody; arm c was out by then.
    strata = [
        {"a": (100, 2), "b": (100, 2), "c": (100, 2)},
        {"a": (100, 50), "b": (100, 50)},
    ]
    assert homogeneity("nodes", strata).p_value == 1.0


def test_an_arm_that_loses_more_is_named_with_what_was_expected() -> None:
    strata = [{"a": (100, 1), "b": (100, 1), "c": (100, 22)}]
    found = homogeneity("people", strata)
    assert found.arm == "c"
    assert (found.arm_lost, found.expected) == (22, 8.0)
    assert found.p_value < ALARM


def test_an_arm_that_loses_nobody_among_losers_is_found_too() -> None:
    strata = [{"a": (200, 40), "b": (200, 40), "c": (200, 0)}]
    found = homogeneity("people", strata)
    assert (found.arm, found.p_value < ALARM) == ("c", True)


def test_equal_arms_are_called_different_no_more_often_than_stated() -> None:
    """All ways to spread 4 losses over 3 arms of 5, weighed exactly: P[p ≤ x] ≤ x."""
    places = [arm for arm in "abc" for _ in range(5)]
    found: dict[tuple[int, ...], float] = {}
    chances: dict[float, float] = {}
    ways = list(itertools.combinations(range(15), 4))
    for way in ways:
        lost = tuple(sum(places[one] == arm for one in way) for arm in "abc")
        if lost not in found:
            table: Stratum = {
                arm: (5, gone) for arm, gone in zip("abc", lost, strict=True)
            }
            found[lost] = homogeneity("nodes", [table]).p_value
        p_value = found[lost]
        chances[p_value] = chances.get(p_value, 0.0) + 1 / len(ways)
    for level in chances:
        at_most = math.fsum(c for p, c in chances.items() if p <= level + 1e-12)
        assert at_most <= level + 1e-9


def test_large_runs_are_tested_as_exactly() -> None:
    generator = np.random.default_rng(5)
    lost = generator.multivariate_hypergeometric([50_000] * 3, 3_000)
    strata = [{arm: (50_000, int(gone)) for arm, gone in zip("abc", lost, strict=True)}]
    assert ALARM < homogeneity("people", strata).p_value <= 1.0  # fails 1 in 1,000


def test_where_nobody_is_lost_nothing_differs() -> None:
    found = homogeneity("people", [{"a": (10, 0), "b": (10, 0)}])
    assert (found.p_value, found.arm) == (1.0, None)
