"""`dist-dp` through split-and-mix: pure noise, and a δ that is nowhere forgotten."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest

from wallflower.protocol.accounting.account import NOTHING, Cost
from wallflower.protocol.accounting.exact import (
    approximate,
    probabilistic,
    renyi_divergence,
    returning_users,
    smallest_bound,
)
from wallflower.protocol.errors import InputError
from wallflower.protocol.noise.balls import ball, precision
from wallflower.protocol.noise.radix import PRIVACY_DELTA, distance_bits
from wallflower.protocol.privacy.mechanism import CohortMechanism, mechanism_named
from wallflower.protocol.privacy.pure import MixedCohort

LEVEL = Fraction(1, 10**6)


def cohort(epsilon: str = "1", name: str = "dist-dp") -> CohortMechanism:
    return mechanism_named(name, Fraction(epsilon)).for_cohort(1000, 800, LEVEL)


def mixed(epsilon: str = "1") -> MixedCohort:
    return MixedCohort.of(cohort(epsilon))


@pytest.mark.parametrize("epsilon", ["0.001", "0.1", "0.5", "1", "1.0986", "5", "32"])
def test_distance_and_level_together_stay_below_the_stated_delta(epsilon: str) -> None:
    level, bits = Fraction(epsilon), distance_bits(Fraction(epsilon))
    with precision(256):
        factor = 1 + ball(level).exp()
        assert factor < 2 ** (bits - 40)
        # No more than rounding 1 + e^ε up to a whole number costs.
        assert factor + 1 > 2 ** (bits - 41)


def test_a_level_without_meaning_is_not_mixed() -> None:
    with pytest.raises(InputError, match="epsilon"):
        mixed("33")


@pytest.mark.parametrize("name", ["dist-rdp", "dist-cdp", "central-dp", "local-dp"])
def test_only_integers_of_dist_dp_are_mixed(name: str) -> None:
    with pytest.raises(InputError, match="dist-dp"):
        MixedCohort.of(cohort(name=name))


def test_the_promise_says_its_delta_and_whom_it_trusts() -> None:
    promise = mixed().guarantee()
    assert promise.privacy_delta == PRIVACY_DELTA
    assert promise.trust == "shuffler"
    assert promise.epsilon == 1


def test_nothing_is_promised_at_a_smaller_delta_than_mixing_costs() -> None:
    smaller = float(PRIVACY_DELTA) / 2
    assert approximate(mixed(), smaller).epsilon == math.inf
    assert mixed().guarantee().approximate(smaller) == math.inf
    assert returning_users([mixed()], 4, smaller)[0].epsilon == pytest.approx(4)
    assert returning_users([mixed()], 4, smaller)[0].privacy_delta > smaller


def test_what_mixing_costs_is_taken_from_the_delta_of_a_conversion() -> None:
    # So small an ε that δ buys something: 2⁻³⁹ less 2⁻⁴⁰ is left for the noise.
    small, own = "0.001", float(PRIVACY_DELTA)
    left = approximate(cohort(small), own).epsilon
    assert approximate(mixed(small), 2 * own).epsilon == pytest.approx(left, rel=1e-12)


@pytest.mark.parametrize("times", [2, 10])
def test_returning_users_add_up_epsilon_and_delta(times: int) -> None:
    added = [
        bound
        for bound in returning_users([mixed()], times, 1e-6)
        if bound.reason == "pure ε added up"
    ]
    assert added[0].epsilon == pytest.approx(times, rel=1e-9)
    assert added[0].privacy_delta == times * float(PRIVACY_DELTA)


def test_the_exact_law_of_the_sum_is_not_composed_where_a_view_may_fail() -> None:
    # Two cohorts: the law of dist-dp's loss composes to less than e^ε's worst case.
    assert (
        smallest_bound([mixed("0.1")], 50, 1e-6).epsilon
        >= smallest_bound([cohort("0.1")], 50, 1e-6).epsilon
    )
    assert renyi_divergence(mixed(), 2.0) == mixed().guarantee().renyi(2.0)


def test_a_loss_may_exceed_epsilon_with_a_chance_where_a_view_may_fail() -> None:
    assert probabilistic(cohort("1"), 1e-12) == pytest.approx(1, rel=1e-9)
    assert probabilistic(mixed("1"), 1e-9) > 1


def test_a_ledger_has_no_bound_once_the_deltas_of_its_spends_are_its_own() -> None:
    cost, account = Cost.of(mixed("0.001").guarantee()), NOTHING
    billionth = Fraction(1, 10**9)
    for _ in range(1000):
        account = account.plus(cost)
    assert account.total(billionth) is not None
    for _ in range(100):  # 1,100 · 2⁻⁴⁰ is more than 10⁻⁹
        account = account.plus(cost)
    assert account.total(billionth) is None
