"""Total noise of a cohort in one draw, for simulations.

Small laws come from the certified tables that clients use. A table grows like √n and
serves few draws at huge cohorts, so larger laws are drawn as differences of geometric,
negative binomial or Poisson variables in double precision: the same law up to rounding
of doubles. That is fine here, where no one's reward is behind the noise, and forbidden
on a client.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from wallflower.protocol.noise.law import BitSource, Integers, NoiseLaw
from wallflower.protocol.noise.laws import (
    DiscreteGaussian,
    DiscreteLaplace,
    NegativeBinomialDifference,
    Skellam,
    SumOfDiscreteGaussians,
)

# Largest standard deviation for which building a certified table is worth it.
_TABLE_DEVIATION = 100.0
# Numpy's Poisson sampler overflows past 2⁶³ and loses single units above 2⁵³.
_GENERATORS: dict[
    type[NoiseLaw], Callable[[Any, int, np.random.Generator], Integers]
] = {}


def total_noise(
    law: NoiseLaw | None, count: int, generator: np.random.Generator, bits: BitSource
) -> Integers:
    """Draw `count` independent totals of the law (0 where there is no noise)."""
    if law is None:
        return np.zeros(count, dtype=np.int64)
    draw = _GENERATORS.get(type(law))
    if draw is None or _has_small_table(law):
        return law.sample(count, bits)
    return draw(law, count, generator)


def _has_small_table(law: NoiseLaw) -> bool:
    if isinstance(law, NegativeBinomialDifference | SumOfDiscreteGaussians):
        return False  # their tables cost far more than their length
    return math.sqrt(law.variance()) <= _TABLE_DEVIATION


def _laplace(
    law: DiscreteLaplace, count: int, generator: np.random.Generator
) -> Integers:
    stop = -math.expm1(-1 / float(law.scale))
    pairs = generator.geometric(stop, (2, count))
    return np.asarray(pairs[0] - pairs[1], dtype=np.int64)


def _negative_binomial(
    law: NegativeBinomialDifference, count: int, generator: np.random.Generator
) -> Integers:
    stop = -math.expm1(-float(law.rate))
    pairs = generator.negative_binomial(float(law.shape), stop, (2, count))
    return np.asarray(pairs[0] - pairs[1], dtype=np.int64)


def _skellam(law: Skellam, count: int, generator: np.random.Generator) -> Integers:
    pairs = generator.poisson(float(law.variance_parameter) / 2, (2, count))
    return np.asarray(pairs[0] - pairs[1], dtype=np.int64)


def _gaussians(
    law: SumOfDiscreteGaussians, count: int, generator: np.random.Generator
) -> Integers:
    """How many of the users drew each value is multinomial."""
    one = DiscreteGaussian(law.variance_parameter)
    reach = math.ceil(9 * math.sqrt(float(law.variance_parameter))) + 3
    masses = one.pmf_range(-reach, reach)
    counts = generator.multinomial(law.count, masses / masses.sum(), count)
    return np.asarray(counts @ np.arange(-reach, reach + 1), dtype=np.int64)


_GENERATORS.update(
    {
        DiscreteLaplace: _laplace,
        NegativeBinomialDifference: _negative_binomial,
        Skellam: _skellam,
        SumOfDiscreteGaussians: _gaussians,
    }
)
