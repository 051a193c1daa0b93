from __future__ import annotations

from fractions import Fraction
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wallflower.protocol.secure_sum.tails import Draw

ONE = Fraction(1)


def exact_tail(draw: Draw, threshold: int) -> Fraction:
    assert draw.population is not None
    marked, rest = int(draw.marked), draw.population - int(draw.marked)
    top = sum(
        comb(marked, i) * comb(rest, draw.size - i)
        for i in range(threshold, min(draw.size, marked) + 1)
    )
    return Fraction(top, comb(draw.population, draw.size))


@st.composite
def draws(source: st.DrawFn) -> Draw:
    population = source(st.integers(1, 60))
    return Draw(
        population,
        source(st.integers(0, population)),
        source(st.integers(1, population)),
    )


@given(draws(), st.integers(1, 50), st.integers(1, 100))
def test_the_threshold_is_the_smallest_that_is_safe(
    draw: Draw, bits: int, factor: int
) -> None:
    threshold = draw.smallest_safe_threshold(Fraction(factor), bits)
    assert factor * exact_tail(draw, threshold) <= Fraction(1, 2**bits)
    if threshold > 0:
        assert factor * exact_tail(draw, threshold - 1) > Fraction(1, 2**bits)


@given(draws(), st.integers(0, 60), st.integers(1, 40))
def test_rarely_below_agrees_with_exact_fractions(
    draw: Draw, threshold: int, bits: int
) -> None:
    below = 1 - exact_tail(draw, threshold)
    assert draw.rarely_below(threshold, ONE, bits) == (below <= Fraction(1, 2**bits))


@pytest.mark.parametrize("size", [1, 7, 40])
def test_masses_add_up_to_one(size: int) -> None:
    for draw in (Draw(100, 30, size), Draw(None, Fraction(3, 10), size)):
        assert np.exp2(draw.log2_masses()).sum() == pytest.approx(1, abs=1e-12)


def test_a_tail_exactly_on_the_bound_counts_as_safe() -> None:
    # P[X ≥ 1] = 1/4 for one draw of a quarter: floats cannot decide, integers do.
    assert Draw(4, 1, 1).smallest_safe_threshold(ONE, 2) == 1
    assert Draw(None, Fraction(1, 4), 1).smallest_safe_threshold(ONE, 2) == 1


@settings(max_examples=30)
@given(st.integers(1, 30), st.integers(1, 9), st.integers(2, 40))
def test_the_binomial_is_decided_exactly_too(size: int, tenth: int, bits: int) -> None:
    chance = Fraction(tenth, 10)
    threshold = Draw(None, chance, size).smallest_safe_threshold(ONE, bits)
    tail = sum(
        comb(size, i) * chance**i * (1 - chance) ** (size - i)
        for i in range(threshold, size + 1)
    )
    assert tail <= Fraction(1, 2**bits)
