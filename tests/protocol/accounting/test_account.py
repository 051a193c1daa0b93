from __future__ import annotations

import dataclasses
import math
from fractions import Fraction

import pytest

from wallflower.protocol.accounting.account import NOTHING, Account, Cost
from wallflower.protocol.errors import InputError
from wallflower.protocol.privacy.guarantee import Guarantee, approximate_epsilon
from wallflower.protocol.privacy.mechanism import mechanism_named

ONE = Fraction(1)
MILLIONTH = Fraction(1, 10**6)
PURE = Cost("pure", ONE)
RENYI = Cost("renyi", ONE, 10**6)
CONCENTRATED = Cost("concentrated", ONE)
CUT = Fraction(1, 2**40)  # what cut-off noise or mixing adds to δ


def account(*costs: Cost) -> Account:
    spent = NOTHING
    for cost in costs:
        spent = spent.plus(cost)
    return spent


def total(*costs: Cost) -> float:
    epsilon = account(*costs).total(MILLIONTH)
    assert epsilon is not None
    return float(epsilon)


def test_nothing_spent_is_nothing_owed() -> None:
    assert total() == 0


def test_one_of_each_kind_at_one_is_8_77() -> None:
    # 1 as it is, and two curves of α/2: 1 + inf α + ln(10⁶/α)/(α−1) + ln(1−1/α).
    assert total(PURE, CONCENTRATED, CONCENTRATED) == pytest.approx(8.7663, abs=1e-3)
    # The curve of Skellam noise is proven at integer orders and interpolated between.
    assert 8.766 <= total(PURE, RENYI, CONCENTRATED) <= 8.81


def test_a_few_pure_spends_add_up_exactly() -> None:
    third = Cost("pure", Fraction(1, 3))
    assert account(third, third, third).total(Fraction(1, 10**12)) == 1


def test_many_small_pure_spends_cost_less_than_their_sum() -> None:
    # 400 · 0.01²/2 is 0.02-zCDP: about 2·√(0.02 ln 10⁶) ≈ 1.03, far below 4.
    assert total(*[Cost("pure", Fraction(1, 100))] * 400) < 1.06


def test_large_pure_spends_are_added_while_small_ones_go_into_the_curve() -> None:
    small = [Cost("pure", Fraction(1, 100))] * 400
    apart = 3 + total(*small)
    assert total(Cost("pure", Fraction(3)), *small) <= apart + 1e-6


def test_the_order_of_spends_does_not_matter() -> None:
    assert account(PURE, RENYI, PURE) == account(RENYI, PURE, PURE)


def test_a_spend_never_lowers_the_total() -> None:
    costs = [PURE, Cost("renyi", Fraction(1, 10), 3), CONCENTRATED] * 3
    totals = [total(*costs[:count]) for count in range(len(costs) + 1)]
    assert totals == sorted(totals)
    assert len(set(totals)) == len(totals)


def test_an_answer_without_noise_has_no_bound() -> None:
    assert account(PURE, Cost("none", Fraction(0))).total(MILLIONTH) is None


@pytest.mark.parametrize("name", ["dist-dp", "dist-rdp", "dist-cdp", "local-dp"])
def test_the_worst_cost_of_a_mechanism_covers_all_its_cohorts(name: str) -> None:
    tenth = Fraction(1, 10)
    for size, scale in ((2, Fraction(3, 2)), (20, Fraction(2)), (1000, Fraction(10))):
        cohort = mechanism_named(name, tenth, scale).for_cohort(
            size, max(1, size // 2), MILLIONTH
        )
        real = Cost.of(cohort.guarantee())
        assert total(Cost.at_most(real.kind, tenth)) >= total(real)


def test_skellam_noise_without_its_precision_is_no_cost() -> None:
    with pytest.raises(InputError, match="precision"):
        Cost("renyi", ONE)


def test_a_guarantee_and_its_cost_have_the_same_curve() -> None:
    promise = Guarantee("renyi", Fraction(1, 2), "distributed", 12)
    for order in (1.5, 2.0, 7.25):
        assert Cost.of(promise).guarantee().renyi(order) == promise.renyi(order)


def test_every_spend_costs_its_own_delta_and_no_other() -> None:
    tiny = Fraction(1, 10**11)  # 10 · 2⁻⁴⁰ < 10⁻¹¹ < 11 · 2⁻⁴⁰
    without, within = Cost("pure", ONE), Cost("pure", ONE, privacy_delta=CUT)
    assert account(*[within] * 10).total(tiny) == 10
    assert account(*[without] * 20, *[within] * 10).total(tiny) == 30
    assert account(*[within] * 11).total(tiny) is None


@pytest.mark.parametrize("privacy_delta", [Fraction(1, 10**6), Fraction(1, 10**9)])
@pytest.mark.parametrize("kind", ["renyi", "concentrated"])
@pytest.mark.parametrize("number", [1, 3, 10])
def test_noise_that_is_cut_off_costs_more_delta_at_a_larger_total(
    number: int, kind: str, privacy_delta: Fraction
) -> None:
    """p of one spend is 2⁻⁴⁰/(1 + e^ε₁); all together cost (1 + e^ε)·Σp."""
    cost = dataclasses.replace(Cost.at_most(kind, Fraction(1), 1000), privacy_delta=CUT)
    stated = account(*[cost] * number).total(privacy_delta)
    assert stated is not None
    curve = cost.guarantee()
    alone = curve.approximate(1e-6)
    lost = number * 2**-40 * (1 + math.exp(float(stated))) / (1 + math.exp(alone))
    left = float(privacy_delta) - lost
    summed = (
        approximate_epsilon(lambda order: number * curve.renyi(order), left)
        if left > 0
        else math.inf
    )
    # Where that leaves nothing, each spend is converted by itself.
    share = float(privacy_delta) / number - 2**-40
    one_by_one = number * curve.approximate(share)
    assert stated >= min(summed, one_by_one) - 1e-9
