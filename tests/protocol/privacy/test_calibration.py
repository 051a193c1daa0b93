from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wallflower.protocol.privacy.calibration import modulus_for, precision_for


@given(
    st.fractions(min_value=Fraction(1, 1000), max_value=100, max_denominator=10**6),
    st.integers(min_value=1, max_value=10**10),
    st.fractions(min_value=1, max_value=1000, max_denominator=100),
)
def test_precision_is_the_smallest_integer_not_below_s_epsilon_root_n(
    epsilon: Fraction, cohort_size: int, scale: Fraction
) -> None:
    precision = precision_for(epsilon, cohort_size, scale)
    square = (scale * epsilon) ** 2 * cohort_size
    assert precision >= 1
    assert precision**2 >= square
    assert (precision - 1) ** 2 < square


@pytest.mark.parametrize(
    ("epsilon", "cohort_size", "precision"),
    [
        # ε√n is an integer where doubles give 0.1·√900 = 3.0000000000000004.
        (Fraction(1, 10), 900, 3),
        (Fraction(3, 10), 10**10, 30000),
        (Fraction(1, 10), 901, 4),
        (Fraction(1), 1, 1),
    ],
)
def test_precision_is_exact_where_the_root_is_an_integer(
    epsilon: Fraction, cohort_size: int, precision: int
) -> None:
    assert precision_for(epsilon, cohort_size) == precision


def test_modulus_has_room_for_every_sum_within_the_noise_bound() -> None:
    assert modulus_for(10, 4, 7) == len(range(-7, 10 * 4 + 7 + 1))
