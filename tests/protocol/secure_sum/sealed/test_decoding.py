"""The sum comes back from its point exactly, or not at all."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wallflower.protocol.errors import InputError
from wallflower.protocol.secure_sum.sealed.decoding import (
    LARGEST_WINDOW,
    decode,
    table_reach,
)
from wallflower.protocol.secure_sum.sealed.group import Point, base, hashed_point


def point_of(value: int) -> Point | None:
    return base(value) if value else None


@settings(max_examples=60, deadline=None)
@given(st.integers(-5000, 5000), st.integers(0, 6000), st.integers(0, 6000))
def test_every_number_of_the_window_is_found_and_no_other(
    value: int, below: int, above: int
) -> None:
    assert decode(point_of(value), value - below, value + above) == value
    assert decode(point_of(value), value + 1, value + 1 + above) is None
    assert decode(point_of(value), value - 1 - below, value - 1) is None


@pytest.mark.parametrize("value", [-3_000_000, -1, 0, 1, 999_999, 4_000_000])
def test_a_wide_window_is_decoded_from_edge_to_edge(value: int) -> None:
    assert decode(point_of(value), -3_000_000, 4_000_000) == value


def test_zero_is_the_point_at_infinity() -> None:
    assert decode(None, -5, 5) == 0
    assert decode(None, 1, 5) is None


def test_a_point_of_no_small_number_is_not_decoded() -> None:
    assert decode(hashed_point("no sum"), -10_000, 10_000) is None


@pytest.mark.parametrize("high", [-1, LARGEST_WINDOW])
def test_an_empty_and_an_endless_window_are_refused(high: int) -> None:
    with pytest.raises(InputError, match="window"):
        decode(base(1), 0, high)


def test_the_table_never_outgrows_its_bound() -> None:
    assert table_reach(LARGEST_WINDOW) <= 2**20
