"""The sampler for wide laws, on laws narrow enough to check every mass."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from flint import arb
from scipy import stats

from tests.support.laws import Poisson, Polya, mass_up_to
from tests.support.statistics import FALSE_ALARM_RATE, chi_square_p_value
from wallflower.protocol.noise.balls import Ball
from wallflower.protocol.noise.bits import OsBits, SeededBits
from wallflower.protocol.noise.difference import NegativeBinomialDifference
from wallflower.protocol.noise.gaussian import DiscreteGaussian, Skellam
from wallflower.protocol.noise.gaussian_sums import SumOfDiscreteGaussians
from wallflower.protocol.noise.laplace import DiscreteLaplace
from wallflower.protocol.noise.law import NoiseLaw
from wallflower.protocol.noise.rejection import LogConcaveSampler

LAWS: list[NoiseLaw] = [
    Polya(Fraction(1), Fraction(1, 4)),
    Polya(Fraction(13, 2), Fraction(1, 4)),
    Poisson(Fraction(17, 2)),
    DiscreteLaplace(Fraction(5)),
    NegativeBinomialDifference(Fraction(4, 3), Fraction(1, 4)),
    Skellam(Fraction(9)),
    DiscreteGaussian(Fraction(16)),
    SumOfDiscreteGaussians(3, Fraction(100)),
]


@pytest.mark.parametrize("law", LAWS, ids=repr)
def test_rejection_gives_the_same_law_as_the_table(law: NoiseLaw) -> None:
    values = law.sample_wide(3000, SeededBits.derived(2, repr(law)))
    assert chi_square_p_value(values, law) > FALSE_ALARM_RATE


WIDE: list[NoiseLaw] = [
    Polya(Fraction(10**6), Fraction(1, 1000)),
    Poisson(Fraction(10**10)),
    DiscreteLaplace(Fraction(10**6)),
    NegativeBinomialDifference(Fraction(10**8), Fraction(1, 10**4)),
    Skellam(Fraction(10**11)),
    DiscreteGaussian(Fraction(10**11)),
    SumOfDiscreteGaussians(10**9, Fraction(101)),
]


@pytest.mark.parametrize("law", WIDE, ids=repr)
def test_wide_laws_are_drawn_without_a_table(law: NoiseLaw) -> None:
    assert law.wide
    values = law.sample(400, SeededBits.derived(3, repr(law)))
    mean = 0.0
    if isinstance(law, Polya):
        mean = float(law.shape) / math.expm1(float(law.rate))
    if isinstance(law, Poisson):
        mean = float(law.mean)
    deviation = law.variance() ** 0.5
    # Mean and variance of 400 draws are this far off less than once in 10⁶ seeds
    # (the heaviest tail here, the Laplace law, has a kurtosis of 6).
    assert abs(np.mean(values) - mean) < 5 * deviation / 20
    assert 0.4 < np.var(values) / law.variance() < 1.8


def test_draws_of_the_operating_system_are_accepted() -> None:
    assert abs(DiscreteLaplace(Fraction(10**6)).sample(1, OsBits())[0]) < 10**8


def test_a_ratio_known_only_roughly_is_refined_until_it_decides() -> None:
    asked: list[int] = []

    def ratio(offset: int) -> Ball:
        from flint import ctx

        asked.append(ctx.prec)
        doubt = arb(0, arb(2) ** -(ctx.prec // 32))
        return arb(2) ** -abs(offset) * (1 + doubt)

    values = LogConcaveSampler(0, ratio, 1.0).sample(2000, SeededBits(6))
    assert max(asked) > 128
    share = np.mean(values == 0)
    count = round(share * 2000)
    assert stats.binomtest(count, 2000, 1 / 3).pvalue > FALSE_ALARM_RATE


def test_the_block_is_widened_until_half_the_mass_is_proven() -> None:
    narrow = LogConcaveSampler(0, lambda k: (-arb(abs(k)) / 50).exp(), 1.0)
    assert narrow._block >= 35


@pytest.mark.parametrize("parts", [65, 200, 1000])
def test_the_bound_of_many_parts_is_never_too_small(parts: int) -> None:
    law = NegativeBinomialDifference(Fraction(parts), Fraction(1, 2))
    level = Fraction(1, 10**6)
    bound = law.two_sided_bound(level)
    assert 2 * mass_up_to(law, -bound - 1) <= level
    assert 2 * mass_up_to(law, -bound * 17 // 20) > level
