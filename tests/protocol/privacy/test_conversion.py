from __future__ import annotations

import math

import pytest

from wallflower.protocol.errors import InputError
from wallflower.protocol.privacy.guarantee import approximate_epsilon, epsilon_at


def test_concentrated_curve_gives_the_known_equivalent() -> None:
    # "RDP at ε = 0.5 is (2.42, 10⁻⁶)-DP": the like-for-like figure of the errata.
    assert approximate_epsilon(lambda a: a * 0.5**2 / 2, 1e-6) == pytest.approx(
        2.42, abs=0.005
    )


def test_ten_cohorts_of_a_tenth_give_the_known_equivalent() -> None:
    # 1.474 with the coarse orders of others; the best order gives 1.4716.
    curve_of_ten = approximate_epsilon(lambda a: 10 * a * 0.1**2 / 2, 1e-6)
    assert curve_of_ten == pytest.approx(1.4716, abs=0.0001)


def test_every_single_order_is_a_valid_bound_above_the_best() -> None:
    def curve(order: float) -> float:
        return order * 0.08

    best = approximate_epsilon(curve, 1e-5)
    for order in (1.5, 2, 10, 100, 1000):
        assert epsilon_at(curve(order), order, 1e-5) >= best - 1e-6


def test_the_search_may_be_restricted_to_integer_orders() -> None:
    def curve(order: float) -> float:
        return order * 0.08

    best = approximate_epsilon(curve, 1e-5)
    integers = approximate_epsilon(curve, 1e-5, range(2, 200))
    assert best <= integers <= best + 0.01


def test_an_infinite_curve_promises_nothing() -> None:
    assert approximate_epsilon(lambda order: math.inf, 1e-5) == math.inf


@pytest.mark.parametrize("privacy_delta", [0, 1, -0.1, math.nan])
def test_a_delta_outside_its_range_is_named(privacy_delta: float) -> None:
    with pytest.raises(InputError, match="privacy_delta"):
        approximate_epsilon(lambda order: order, privacy_delta)
