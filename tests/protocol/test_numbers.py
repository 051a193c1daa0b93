from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wallflower.protocol.errors import InputError
from wallflower.protocol.numbers import exact, positive, probability, round_up, whole


def test_a_float_is_read_as_the_decimal_its_author_typed() -> None:
    assert exact("epsilon", 0.1) == Fraction(1, 10)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "x", None, True, "1/0"])
def test_what_is_no_finite_number_is_refused_by_name(value: object) -> None:
    with pytest.raises(InputError, match="epsilon is"):
        exact("epsilon", value)


@pytest.mark.parametrize("text", ["1e99999999", "1e-99999999", "0e99999999"])
def test_a_huge_exponent_is_refused_before_it_is_written_out(text: str) -> None:
    for value in (text, Decimal(text)):
        with pytest.raises(InputError, match="epsilon is"):
            exact("epsilon", value)
        with pytest.raises(InputError, match="horizon is"):
            whole("horizon", value, at_least=0)


@pytest.mark.parametrize("value", [0, -1, "-1/2"])
def test_positive_refuses_zero_and_below(value: object) -> None:
    with pytest.raises(InputError, match="greater than 0"):
        positive("epsilon", value)


@pytest.mark.parametrize("value", [0, 1, 2, "-0.1"])
def test_probability_refuses_the_ends(value: object) -> None:
    with pytest.raises(InputError, match="strictly between 0 and 1"):
        probability("p", value)


def test_whole_accepts_scientific_notation() -> None:
    assert whole("horizon", "1e6", at_least=1) == 1_000_000


@pytest.mark.parametrize("value", [1.5, "1.5", 0, "abc", True, float("inf")])
def test_whole_refuses_fractions_and_values_below_the_bound(value: object) -> None:
    with pytest.raises(InputError):
        whole("horizon", value, at_least=1)


@given(st.floats(min_value=1e-9, max_value=1e6), st.integers(1, 6))
def test_a_displayed_loss_is_never_below_the_loss(value: float, digits: int) -> None:
    shown = Fraction(round_up(value, digits))
    assert shown >= Fraction(repr(value))
    assert shown - Fraction(repr(value)) <= Fraction(1, 10**digits)
