from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wallflower.protocol.errors import InputError
from wallflower.protocol.rewards.reward_range import DEFAULT_RANGE, RewardRange

EUROS = RewardRange(Fraction(-50), Fraction(150), "€")
ends = st.fractions(min_value=-(10**6), max_value=10**6, max_denominator=1000)
outcomes = st.floats(allow_nan=False, allow_infinity=False)


@given(low=ends, width=st.fractions(Fraction(1, 1000), 10**6), outcome=outcomes)
def test_every_outcome_becomes_a_number_from_0_to_1(
    low: Fraction, width: Fraction, outcome: float
) -> None:
    measured = RewardRange(low, low + width.limit_denominator(1000))
    mapped = measured.to_fraction(outcome)
    assert 0 <= mapped <= 1
    assert measured.to_fractions(np.array([outcome])).tolist() == [mapped]
    assert (mapped == 0) or outcome > float(low)
    assert (mapped == 1) or outcome < float(measured.high)


@given(outcome=st.floats(0, 1))
def test_outcomes_from_0_to_1_stay_exactly_as_they_are(outcome: float) -> None:
    assert DEFAULT_RANGE.to_fraction(outcome) == outcome


@given(outcome=st.floats(-50, 150))
def test_a_mean_is_mapped_back_to_what_it_was(outcome: float) -> None:
    assert EUROS.mean(EUROS.to_fraction(outcome)) == pytest.approx(outcome, abs=1e-9)


def test_a_difference_knows_nothing_of_the_low_end() -> None:
    assert EUROS.difference(0.25) == 50
    assert EUROS.mean(0.5) - EUROS.mean(0.25) == 50


def test_means_are_printed_with_unit_and_steady_decimals() -> None:
    assert EUROS.describe(0.5) == "50.00 €"
    assert EUROS.describe(0) == "-50.00 €"
    assert EUROS.describe_difference(0.001) == "0.20 €"
    assert DEFAULT_RANGE.describe(0.25) == "0.250"
    assert RewardRange(Fraction(0), Fraction(100_000)).describe(0.5) == "50,000"
    assert str(RewardRange(Fraction(1, 3), Fraction(5, 2), "km")) == "1/3 to 2.5 km"


@pytest.mark.parametrize(
    ("low", "high", "unit"),
    [
        (1, 1, ""),
        (2, 1, ""),
        # Different fractions that are the same double: no outcome lies between.
        (Fraction(10**12 - 2, 10**12 - 1), Fraction(10**12 - 1, 10**12), ""),
        (0, 1, " €"),
        (0, 1, "a\nb"),
        (0, 1, "x" * 21),
    ],
)
def test_a_range_without_width_or_a_unit_that_plays_tricks_is_refused(
    low: Fraction, high: Fraction, unit: str
) -> None:
    with pytest.raises(InputError):
        RewardRange(Fraction(low), Fraction(high), unit)
