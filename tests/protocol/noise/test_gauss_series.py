"""Gauss's function: the terms added up here against flint and against a closed form."""

from __future__ import annotations

from fractions import Fraction

import pytest
from flint import arb

from wallflower.protocol.noise.balls import ball, precision
from wallflower.protocol.noise.difference import gauss_series

_SHAPES = [Fraction(1, 104), Fraction(1, 2), Fraction(129, 104), Fraction(4)]
_RATES = [Fraction(3), Fraction(1, 4), Fraction(1, 12), Fraction(1, 40)]


@pytest.mark.parametrize("rate", _RATES, ids=str)
@pytest.mark.parametrize("shape", _SHAPES, ids=str)
@pytest.mark.parametrize("extra", [0, 1])
@pytest.mark.parametrize("x", [0, 1, 300])
def test_the_sum_of_terms_meets_flints_enclosure_and_is_tight(
    shape: Fraction, rate: Fraction, extra: int, x: int
) -> None:
    with precision(200):
        found = gauss_series(shape, rate, x, extra)
        assert found.rel_accuracy_bits() > 170
    with precision(800):
        other = (
            (-2 * ball(rate))
            .exp()
            .hypgeom_2f1(ball(shape) + extra, ball(shape) + x, arb(x + 1))
        )
        assert found.overlaps(other)


@pytest.mark.parametrize("rate", [Fraction(1, 41), Fraction(1, 900)], ids=str)
@pytest.mark.parametrize("shape", [*_SHAPES, Fraction(9)], ids=str)
@pytest.mark.parametrize("extra", [0, 1])
@pytest.mark.parametrize("scales", [0, 1, 35, 100])
def test_small_rates_meet_flints_enclosure_however_far_out(
    shape: Fraction, rate: Fraction, extra: int, scales: int
) -> None:
    x = int(scales / rate)
    with precision(200):
        found = gauss_series(shape, rate, x, extra)
    with precision(2000):
        other = (
            (-2 * ball(rate))
            .exp()
            .hypgeom_2f1(ball(shape) + extra, ball(shape) + x, arb(x + 1))
        )
        assert found.overlaps(other)
        assert other.rel_accuracy_bits() > 1000


def test_a_small_rate_loses_no_bits_to_the_subtraction() -> None:
    """flint alone would give 176 of the 200 bits, by its slow routine."""
    with precision(200):
        found = gauss_series(Fraction(5, 4), Fraction(1, 900), 35 * 900, 0)
        assert found.rel_accuracy_bits() > 200


@pytest.mark.parametrize("rate", [*_RATES, Fraction(1, 500)], ids=str)
def test_shape_one_is_a_geometric_series(rate: Fraction) -> None:
    with precision(200):
        found = gauss_series(Fraction(1), rate, 7, 0)
    with precision(800):
        assert found.contains(1 / (1 - (-2 * ball(rate)).exp()))


def test_the_rest_beyond_the_last_term_is_enclosed() -> None:
    """At 32 terms in a look the sum alone would lie below the true value."""
    with precision(64):
        found = gauss_series(Fraction(1, 2), Fraction(1, 12), 3, 1)
    with precision(800):
        exact = gauss_series(Fraction(1, 2), Fraction(1, 12), 3, 1)
        assert found.contains(exact.mid())
        assert found.upper() > exact
