"""The check that guards our samplers rejects the mistakes others have made."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from tests.support.laws import Polya
from tests.support.statistics import FALSE_ALARM_RATE, chi_square_p_value
from wallflower.protocol.noise.bits import Integers
from wallflower.protocol.noise.difference import NegativeBinomialDifference
from wallflower.protocol.noise.laplace import DiscreteLaplace

USERS = 20
SCALE = 8
DRAWS = 40_000
SHARE = Polya(Fraction(1, USERS), Fraction(1, SCALE))
TOTAL = DiscreteLaplace(Fraction(SCALE))


def gamma_poisson(shape: float, gamma_scale: float, count: int, seed: int) -> Integers:
    """Draw a Pólya variable the usual way, in doubles."""
    generator = np.random.default_rng(seed)
    return generator.poisson(generator.gamma(shape, gamma_scale, count))


def odds() -> float:
    """q/(1−q), the scale of the Gamma law that gives Pólya(·, q)."""
    return 1 / math.expm1(1 / SCALE)


def test_a_right_gamma_poisson_draw_passes() -> None:
    values = gamma_poisson(1 / USERS, odds(), DRAWS, 1)
    assert chi_square_p_value(values, SHARE) > FALSE_ALARM_RATE


def test_an_inverted_gamma_scale_is_caught() -> None:
    values = gamma_poisson(1 / USERS, 1 / odds(), DRAWS, 2)
    assert chi_square_p_value(values, SHARE) < FALSE_ALARM_RATE


def test_shape_n_instead_of_one_over_n_is_caught() -> None:
    values = gamma_poisson(USERS, odds(), DRAWS, 3)
    assert chi_square_p_value(values, SHARE) < FALSE_ALARM_RATE


@pytest.mark.parametrize(
    ("shape", "gamma_scale", "passes"),
    [
        (1 / USERS, odds(), True),
        (1 / USERS, 1 / odds(), False),
        (float(USERS), odds(), False),
    ],
    ids=["right", "scale inverted", "shape n"],
)
def test_totals_of_a_cohort_show_the_mistakes_too(
    shape: float, gamma_scale: float, passes: bool
) -> None:
    count = USERS * 5000
    difference = gamma_poisson(shape, gamma_scale, count, 4)
    difference = difference - gamma_poisson(shape, gamma_scale, count, 5)
    totals = difference.reshape(-1, USERS).sum(axis=1)
    assert (chi_square_p_value(totals, TOTAL) > FALSE_ALARM_RATE) is passes


def test_one_missing_share_in_twenty_is_caught_in_the_total() -> None:
    from wallflower.protocol.noise.bits import SeededBits

    short = NegativeBinomialDifference(Fraction(USERS - 1, USERS), Fraction(1, SCALE))
    values = short.sample(200_000, SeededBits(6))
    assert chi_square_p_value(values, TOTAL) < FALSE_ALARM_RATE
