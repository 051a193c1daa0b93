"""Fair coins, counted: the noise of the shuffled peer."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from wallflower.protocol.errors import InputError
from wallflower.protocol.noise.binomial import CentredBinomial
from wallflower.protocol.noise.bits import SeededBits


@pytest.mark.parametrize("coins", [2, 8, 66, 300])
def test_masses_tails_and_bounds_are_those_of_the_coins(coins: int) -> None:
    law, half = CentredBinomial(coins), coins // 2
    exact = [Fraction(math.comb(coins, half + x), 2**coins) for x in range(half + 1)]
    assert [law.pmf(x) for x in range(half + 1)] == [float(mass) for mass in exact]
    assert law.pmf(half + 1) == 0
    assert law.cdf(0) == pytest.approx(float((1 + exact[0]) / 2), rel=1e-12)
    level = Fraction(1, 100)
    bound = law.two_sided_bound(level)
    assert 2 * sum(exact[bound + 1 :]) <= level
    assert bound == 0 or 2 * sum(exact[bound:]) > level


@pytest.mark.parametrize("argument", [-2.0, 0.1, 30.0])
def test_the_logarithm_of_the_mgf_is_the_sums(argument: float) -> None:
    law = CentredBinomial(20)
    total = sum(law.pmf(x) * math.exp(argument * x) for x in range(-10, 11))
    assert law.log_mgf(argument) == pytest.approx(math.log(total), rel=1e-9)


@pytest.mark.parametrize("coins", [6, 64, 70])
def test_draws_follow_the_law(coins: int) -> None:
    count, law = 20_000, CentredBinomial(coins)
    drawn = law.sample(count, SeededBits(14))
    assert np.abs(drawn).max() <= coins // 2
    # Mean and variance within 6 deviations each: false alarm below 10⁻⁸.
    assert abs(drawn.mean()) < 6 * math.sqrt(coins / 4 / count)
    spread = math.sqrt(2 / count) * coins / 4
    assert abs(drawn.var() - coins / 4) < 6 * spread


@pytest.mark.parametrize("coins", [0, 3, 1 << 21])
def test_odd_or_absurd_numbers_of_coins_are_refused(coins: int) -> None:
    with pytest.raises(InputError, match="coins"):
        CentredBinomial(coins)
