from __future__ import annotations

import math
from fractions import Fraction

import pytest

from wallflower.protocol.errors import InputError
from wallflower.protocol.privacy.guarantee import Guarantee, skellam_bound

HALF = Fraction(1, 2)


def test_a_pure_promise_bounds_every_order_by_epsilon() -> None:
    promise = Guarantee("pure", HALF, "nobody")
    assert promise.renyi(1.5) == pytest.approx(1.5 * 0.125)
    assert promise.renyi(1e6) == 0.5


def test_a_pure_promise_of_few_cohorts_adds_up() -> None:
    promise = Guarantee("pure", Fraction(1, 10), "nobody")
    assert promise.approximate(1e-6, cohorts=10) == pytest.approx(1.0, abs=1e-5)


def test_a_concentrated_promise_is_linear_in_the_order() -> None:
    assert Guarantee("concentrated", HALF, "distributed").renyi(8) == 1.0


def test_the_skellam_curve_carries_the_corrected_second_term() -> None:
    # n = 1, s = 10, ε = 0.1: g = 1, and 3ε²/(2g) = 0.015 where the paper prints
    # 3ε²/(2s) = 0.0015.
    promise = Guarantee("renyi", Fraction(1, 10), "distributed", 1)
    first = 3 * 1e-4 / 4 + 3e-4 / 2
    assert promise.renyi(2) == pytest.approx(0.01 + min(first, 0.015))
    assert skellam_bound(0.1, 1, 1000) == pytest.approx(5 + 0.015)


def test_an_order_between_integers_lies_on_the_chord_of_the_scaled_divergence() -> None:
    two, three = skellam_bound(0.5, 3, 2), skellam_bound(0.5, 3, 3)
    assert skellam_bound(0.5, 3, 2.5) == pytest.approx((two + 2 * three) / 3)
    assert skellam_bound(0.5, 3, 1.1) == pytest.approx(two)


def test_nothing_promised_is_shown_as_infinite() -> None:
    promise = Guarantee("none", None, "server")
    assert promise.epsilon_text == "∞"
    assert promise.renyi(2) == math.inf
    assert promise.approximate(1e-6) == math.inf


def test_epsilon_is_shown_rounded_up() -> None:
    assert Guarantee("pure", Fraction(1, 3), "server").epsilon_text == "0.3334"


@pytest.mark.parametrize("order", [1, 0.5, math.nan])
def test_an_order_of_at_most_one_is_refused(order: float) -> None:
    with pytest.raises(InputError, match="order"):
        Guarantee("pure", HALF, "server").renyi(order)


@pytest.mark.parametrize(
    ("kind", "epsilon", "trust"),
    [("purest", HALF, "server"), ("pure", HALF, "god"), ("pure", None, "server")],
)
def test_a_promise_that_makes_no_sense_is_refused(
    kind: str, epsilon: Fraction | None, trust: str
) -> None:
    with pytest.raises(InputError):
        Guarantee(kind, epsilon, trust)
