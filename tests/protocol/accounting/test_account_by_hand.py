"""Totals, cuts and views, held against their definitions on random spends."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest

from wallflower.protocol.accounting.account import NOTHING, Account, Cost
from wallflower.protocol.accounting.exact import (
    approximate,
    effective_epsilon_of,
    renyi_bound,
    returning_users,
)
from wallflower.protocol.accounting.losses import Losses, composed_epsilon
from wallflower.protocol.accounting.shifted import Seen, shifted
from wallflower.protocol.accounting.truncation import (
    PRIVACY_DELTA,
    added_delta,
    truncation,
)
from wallflower.protocol.noise.laplace import DiscreteLaplace
from wallflower.protocol.privacy.guarantee import Guarantee, approximate_epsilon
from wallflower.protocol.privacy.mechanism import CohortMechanism, mechanism_named
from wallflower.protocol.privacy.pure import MixedCohort

EPSILONS = [Fraction(text) for text in ("1/50", "1/10", "1/2", "1", "3")]
CUT = Fraction(1, 2**40)
GRID = 2e-6  # totals are rounded up on a grid of 10⁻⁶, and one step more


def spent(costs: Sequence[Cost]) -> Account:
    account = NOTHING
    for cost in costs:
        account = account.plus(cost)
    return account


def converted(costs: Sequence[Cost], delta: Fraction) -> float:
    """ε of curves that are added up, of spends that have no δ of their own."""
    if not costs:
        return 0.0
    curves = [cost.guarantee() for cost in costs]
    return approximate_epsilon(
        lambda order: sum(curve.renyi(order) for curve in curves), float(delta)
    )


def smallest_total(pure: Sequence[Cost], curved: Sequence[Cost], delta: float) -> float:
    """Add the largest so many kinds of pure spends as they are, convert the rest."""
    kinds = sorted(set(pure), reverse=True)
    found = []
    for added in range(len(kinds) + 1):
        plain = [cost for cost in pure if cost in kinds[:added]]
        rest = [cost for cost in pure if cost not in kinds[:added]]
        left = Fraction(delta) - sum(cost.privacy_delta for cost in plain)
        if left > 0:
            as_they_are = float(sum(cost.epsilon for cost in plain))
            found.append(as_they_are + converted([*rest, *curved], left))
    return min(found)


@pytest.mark.parametrize("seed", range(40))
def test_a_total_is_the_smallest_over_all_splits(seed: int) -> None:
    dice = random.Random(seed)
    pure = [
        Cost("pure", dice.choice(EPSILONS)) for _ in range(dice.choice([0, 2, 9, 40]))
    ]
    curved = [
        Cost("concentrated", dice.choice(EPSILONS)) for _ in range(dice.choice([0, 3]))
    ]
    if not pure and not curved:
        pure = [Cost("pure", Fraction(1))]
    total = spent([*pure, *curved]).total(Fraction(1, 10**6))
    assert total is not None
    expected = smallest_total(pure, curved, 1e-6)
    assert expected - 1e-12 <= float(total) <= expected + GRID


def test_large_spends_with_a_delta_are_added_and_small_ones_converted() -> None:
    """Converted together with others, cut-off noise would cost e^(ε − ε₁) times δ."""
    large = Cost("pure", Fraction(3), privacy_delta=CUT)
    small = [Cost("pure", Fraction(1, 50))] * 200
    total = spent([large, *small]).total(4 * CUT)
    assert total is not None
    expected = 3 + converted(small, 3 * CUT)
    assert expected < 3 + 4
    assert expected - 1e-12 <= float(total) <= expected + GRID


def test_every_pure_spend_that_is_added_costs_its_own_delta() -> None:
    within = Cost("pure", Fraction(1), privacy_delta=CUT)
    curve = Cost("concentrated", Fraction(1, 10))
    delta = 21 * CUT  # what 20 spends leave of it decides the curve's ε
    total = spent([*[within] * 20, curve]).total(delta)
    assert total is not None
    expected = 20 + converted([curve], CUT)
    assert expected - 1e-12 <= float(total) <= expected + GRID


def test_one_by_one_every_spend_gets_its_share_of_delta() -> None:
    """Spends whose sum leaves no δ are converted each by itself, at δ/n."""
    cost = Cost("concentrated", Fraction(1), privacy_delta=CUT)
    number, delta = 40, Fraction(1, 10**7)
    total = spent([cost] * number).total(delta)
    alone = spent([cost]).total(delta / number)
    assert alone is not None
    assert total == number * alone


def test_a_proof_adds_its_delta_to_that_of_the_promise() -> None:
    promise = Guarantee("pure", Fraction(1), "shuffler", privacy_delta=Fraction(CUT))
    assert Cost.of(promise).privacy_delta == CUT
    assert Cost.of(promise, proved_inputs=True).privacy_delta == CUT + PRIVACY_DELTA


def test_the_excess_of_gaussian_shares_is_in_the_worst_cost() -> None:
    assert Cost.at_most("concentrated", Fraction(1)).epsilon > 1
    assert Cost.at_most("pure", Fraction(1)).epsilon == 1


def cohort(name: str, size: int, floor: int, epsilon: int = 1) -> CohortMechanism:
    return mechanism_named(name, Fraction(epsilon)).for_cohort(
        size, floor, Fraction(1, 10**6)
    )


@pytest.mark.parametrize("users", range(1, 8))
def test_a_node_may_send_what_its_users_together_may(users: int) -> None:
    cut = truncation(cohort("dist-dp", 40, 36))
    least, most = -cut.bound, cut.precision + cut.bound  # of one user
    assert cut.allowed(users) == (users * least, users * most)


def test_of_several_cohorts_the_most_expensive_cut_counts() -> None:
    cheap, dear = cohort("dist-rdp", 400, 320), cohort("dist-rdp", 400, 320, 3)
    total = dear.guarantee().approximate(1e-6) + 1
    alone = [added_delta([one], 2, total) for one in (cheap, dear)]
    assert alone[0] != alone[1]
    assert added_delta([cheap, dear], 2, total) == max(alone)
    assert added_delta([dear, cheap], 2, total) == max(alone)


def test_a_cut_costs_no_less_at_a_smaller_total() -> None:
    asked = cohort("dist-rdp", 400, 320, 3)
    once = truncation(asked).privacy_delta
    assert added_delta([asked], 1, 0.1) == once


@pytest.mark.parametrize("order", [1.5, 2.0, 8.0])
def test_a_view_widens_every_divergence_by_what_it_tells(order: float) -> None:
    of_sum = shifted(DiscreteLaplace(Fraction(1, 4)), 4)
    seen, loss = Seen(of_sum, Fraction(1, 8)), 0.125
    widened = of_sum.renyi(order).upper + order * loss / (order - 1)
    assert seen.renyi(order).upper == pytest.approx(widened)
    assert seen.pure() == pytest.approx(of_sum.pure() + loss)
    assert seen.approximate(1e-6) == pytest.approx(of_sum.approximate(1e-6) + loss)


@pytest.mark.parametrize("name", ["dist-rdp", "dist-cdp"])
def test_missing_shares_are_counted_from_the_floor(name: str) -> None:
    asked = cohort(name, 100, 80)
    promised = float(asked.guarantee().epsilon or 0)
    assert effective_epsilon_of(asked, 80) == promised
    assert effective_epsilon_of(asked, 20) == pytest.approx(promised * math.sqrt(4))


def test_one_participation_costs_what_the_most_expensive_cohort_does() -> None:
    cheap, dear = cohort("dist-rdp", 400, 320), cohort("dist-rdp", 400, 320, 2)
    alone = [approximate(one, 1e-6).epsilon for one in (cheap, dear)]
    assert alone[0] < alone[1]
    for mix in ([cheap, dear], [dear, cheap]):
        (bound,) = returning_users(mix, 1, 1e-6)
        assert bound.epsilon == alone[1]


def test_every_participation_takes_its_own_delta_from_the_total() -> None:
    mixed = MixedCohort.of(cohort("dist-dp", 400, 320))
    assert mixed.view_delta > 0
    delta = 2.5 * float(mixed.view_delta)
    assert math.isfinite(renyi_bound([mixed], 2, delta).epsilon)
    assert math.isinf(renyi_bound([mixed], 3, delta).epsilon)


def test_infinite_losses_of_all_participations_are_paid_for() -> None:
    losses = Losses(np.array([0.1, -0.1]), np.array([0.525, 0.475]) - 5e-8, 1e-7)
    assert math.isinf(composed_epsilon([losses], 10, 9e-7))
    assert math.isfinite(composed_epsilon([losses], 10, 1.2e-6))
