from __future__ import annotations

from fractions import Fraction

import pytest

from wallflower.protocol.errors import InputError
from wallflower.protocol.files.sections import RewardSettings
from wallflower.protocol.rewards.outcome_window import IMMEDIATE_S, OutcomeWindow

EUROS = (Fraction(-50), Fraction(150))


def test_what_counts_for_an_unknown_outcome_is_stated_in_the_unit() -> None:
    settings = RewardSettings(range=EUROS, unit="€", if_unknown=0)
    assert settings.window == OutcomeWindow(None, 0.25)


def test_by_default_an_unknown_outcome_counts_as_the_low_end() -> None:
    assert RewardSettings(range=EUROS, window_s=7).window == OutcomeWindow(7, 0.0)


@pytest.mark.parametrize("value", [-51, 151, float("nan")])
def test_what_counts_for_an_unknown_outcome_lies_in_the_range(value: float) -> None:
    with pytest.raises(InputError, match=r"if-unknown is .*; allowed: within"):
        RewardSettings(range=EUROS, if_unknown=value)


@pytest.mark.parametrize("seconds", [0, -1, 7 * 86_400 + 1, float("nan")])
def test_a_window_is_of_some_seconds_and_at_most_a_week(seconds: float) -> None:
    with pytest.raises(InputError, match="window-s is"):
        RewardSettings(window_s=seconds)


def test_without_a_window_a_cohort_states_none_and_a_minute_is_waited() -> None:
    assert (OutcomeWindow().stated_ms, OutcomeWindow().limit_s) == (0, IMMEDIATE_S)
    assert (OutcomeWindow(5).stated_ms, OutcomeWindow(5).limit_s) == (5000, 5)
    assert OutcomeWindow(0.0101).stated_ms == 11
    assert OutcomeWindow().allows(0)
