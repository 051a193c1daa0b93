"""The noise of n users together has the law of the total, for n ≤ 64."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.support.laws import Polya
from wallflower.protocol.noise.difference import NegativeBinomialDifference
from wallflower.protocol.noise.gaussian import DiscreteGaussian, Skellam
from wallflower.protocol.noise.gaussian_sums import SumOfDiscreteGaussians
from wallflower.protocol.noise.laplace import DiscreteLaplace
from wallflower.protocol.noise.law import NoiseLaw

AGREEMENT = 1e-12
COHORTS = [1, 2, 3, 17, 64]


def convolved(share: NoiseLaw, users: int, reach: int) -> NDArray[np.float64]:
    """Convolve the masses on −reach … reach directly, one user after the other."""
    masses = share.pmf_range(-reach, reach)
    total = masses
    for _ in range(users - 1):
        total = np.convolve(total, masses)[reach : 3 * reach + 1]
    return total


def largest_gap(share: NoiseLaw, total: NoiseLaw, users: int) -> float:
    reach = total.two_sided_bound(Fraction(1, 10**15))
    gaps = convolved(share, users, reach) - total.pmf_range(-reach, reach)
    return float(np.abs(gaps).max())


@pytest.mark.parametrize("users", COHORTS)
def test_polya_differences_sum_to_the_discrete_laplace(users: int) -> None:
    share = NegativeBinomialDifference(Fraction(1, users), Fraction(1, 6))
    assert largest_gap(share, DiscreteLaplace(Fraction(6)), users) < AGREEMENT


@pytest.mark.parametrize("users", COHORTS)
def test_polya_differences_beyond_the_floor_sum_to_the_nb_difference(
    users: int,
) -> None:
    floor = 5
    share = NegativeBinomialDifference(Fraction(1, floor), Fraction(1, 6))
    total = NegativeBinomialDifference(Fraction(users, floor), Fraction(1, 6))
    assert largest_gap(share, total, users) < AGREEMENT


def test_nb_difference_is_the_difference_of_two_polya_draws() -> None:
    shape, rate = Fraction(3, 7), Fraction(1, 5)
    positive = Polya(shape, rate).pmf_range(0, 400)
    difference = np.convolve(positive, positive[::-1])
    total = NegativeBinomialDifference(shape, rate).pmf_range(-400, 400)
    assert np.abs(difference - total).max() < AGREEMENT


@pytest.mark.parametrize("users", COHORTS)
def test_skellam_shares_sum_to_skellam(users: int) -> None:
    share = Skellam(Fraction(30, users))
    assert largest_gap(share, Skellam(Fraction(30)), users) < AGREEMENT


@pytest.mark.parametrize("users", COHORTS)
@pytest.mark.parametrize("variance", [Fraction(1, 2), Fraction(9, 4), Fraction(100)])
def test_discrete_gaussian_shares_sum_to_their_total(
    users: int, variance: Fraction
) -> None:
    share = DiscreteGaussian(variance)
    total = SumOfDiscreteGaussians(users, variance)
    assert largest_gap(share, total, users) < AGREEMENT


def test_convolution_stays_within_the_closeness_theorem() -> None:
    total = SumOfDiscreteGaussians(64, Fraction(1))
    reach = 60
    gap = np.log(total.pmf_range(-reach, reach) / total.single.pmf_range(-reach, reach))
    assert 1e-7 < np.abs(gap).max() <= total.closeness()


def test_two_sided_bound_without_convolution_is_never_too_small() -> None:
    # Variance 2^19 is past what is convolved at once; the closeness e^±0.02 is used.
    wide = SumOfDiscreteGaussians(1 << 19, Fraction(1))
    level = Fraction(1, 10**6)
    bound = wide.two_sided_bound(level)
    single = wide.single.two_sided_bound(level)
    assert single <= bound <= single + 4


def test_a_total_drawn_in_parts_has_the_variance_of_the_whole() -> None:
    from wallflower.protocol.noise.bits import SeededBits

    wide = SumOfDiscreteGaussians(1 << 20, Fraction(1))
    values = wide.sample(4000, SeededBits(5))
    # The sample variance of 4000 normals is within 13 % with probability 1 − 10⁻⁸.
    assert np.var(values) == pytest.approx(wide.variance(), rel=0.13)
