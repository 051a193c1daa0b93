from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wallflower.protocol.privacy.mechanism import mechanism_named
from wallflower.strategy.bandit.index_choice import (
    bernoulli_kl,
    divergence_for,
    private_divergence,
)

UNIT = st.floats(0.001, 0.999)
EPSILON = st.floats(0.01, 4)


def one(value: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.array([value])


@given(UNIT, UNIT, EPSILON)
def test_the_closed_form_is_the_infimum_over_a_grid(
    x: float, y: float, epsilon: float
) -> None:
    value = private_divergence(one(x), one(y), epsilon)[0]
    if y <= x:
        assert value == 0
        return
    grid = np.linspace(x, y, 4001)
    brute = (epsilon * (grid - x) + bernoulli_kl(grid, np.full_like(grid, y))).min()
    assert value <= brute + 1e-12
    assert value == pytest.approx(brute, rel=1e-4, abs=1e-7)


def test_without_privacy_it_is_the_bernoulli_divergence() -> None:
    value = private_divergence(one(0.3), one(0.6), math.inf)[0]
    assert value == pytest.approx(0.3 * math.log(0.5) + 0.7 * math.log(1.75))


def test_at_the_edges_nothing_is_undefined() -> None:
    edge = np.array([0.0, 0.0, 1.0, 0.5])
    other = np.array([0.0, 1.0, 1.0, 1.0])
    values = private_divergence(edge, other, 0.5)
    assert values.tolist() == pytest.approx([0.0, 0.5, 0.0, 0.25])


def test_local_noise_has_its_own_divergence() -> None:
    local, central = (
        divergence_for(mechanism_named(name, Fraction(1, 2)))
        for name in ("local-dp", "dist-dp")
    )
    x, y = one(0.3), one(0.6)
    assert local.between(x, y, 0.5)[0] < central.between(x, y, 0.5)[0]
