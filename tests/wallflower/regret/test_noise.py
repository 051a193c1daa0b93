"""Big laws drawn in doubles follow the certified laws; false alarm rate 1e-4 each."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

import wallflower.regret.draws as module
from tests.support.laws import mass_up_to
from wallflower.protocol.noise.bits import SeededBits
from wallflower.protocol.noise.difference import NegativeBinomialDifference
from wallflower.protocol.noise.gaussian import DiscreteGaussian, Skellam
from wallflower.protocol.noise.gaussian_sums import SumOfDiscreteGaussians
from wallflower.protocol.noise.laplace import DiscreteLaplace
from wallflower.protocol.noise.law import NoiseLaw
from wallflower.regret.draws import total_noise

LAWS = {
    "laplace": DiscreteLaplace(Fraction(7)),
    "negative binomial": NegativeBinomialDifference(Fraction(5, 4), Fraction(1, 7)),
    "skellam": Skellam(Fraction(40)),
    "gaussians": SumOfDiscreteGaussians(6, Fraction(9)),
}


@pytest.mark.parametrize("name", LAWS)
def test_draws_in_doubles_follow_the_law(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_TABLE_DEVIATION", 0.0)
    law = LAWS[name]
    draws = total_noise(law, 40_000, np.random.default_rng(3), SeededBits(3))
    deviation = np.sqrt(law.variance())
    edges = sorted({int(deviation * k / 5) for k in range(-10, 11)})
    masses = np.diff([0.0, *(mass_up_to(law, edge) for edge in edges), 1.0])
    counts = np.histogram(draws, [-np.inf, *(e + 0.5 for e in edges), np.inf])[0]
    assert stats.chisquare(counts, masses * 40_000).pvalue > 1e-4


def test_a_small_law_comes_from_the_certified_table() -> None:
    law = LAWS["laplace"]
    drawn = total_noise(law, 50, np.random.default_rng(0), SeededBits(9))
    assert drawn.tolist() == law.sample(50, SeededBits(9)).tolist()


def test_a_law_without_a_double_sampler_comes_from_its_table() -> None:
    law: NoiseLaw = DiscreteGaussian(Fraction(10**6))
    drawn = total_noise(law, 5, np.random.default_rng(0), SeededBits(9))
    assert drawn.tolist() == law.sample(5, SeededBits(9)).tolist()


def test_no_law_is_no_noise() -> None:
    drawn = total_noise(None, 4, np.random.default_rng(0), SeededBits(0))
    assert drawn.tolist() == [0, 0, 0, 0]
