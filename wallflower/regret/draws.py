"""The decoded sum of a cohort, drawn without simulating its users.

Σx̂ is one multinomial draw over {0..g}, the total noise one draw from its own law; the
sum is wrapped and decoded as the analyzer would. Exact in law, O(g) a cohort.

Small noise laws come from the certified tables that clients use. A table grows like √n
and serves few draws at huge cohorts. So larger laws are drawn as differences of
geometric, negative binomial or Poisson variables in double precision: the same law up
to rounding. That is fine here, where nobody's reward is behind the noise, and forbidden
on a client.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wallflower.protocol.noise.bits import BitSource, SeededBits
from wallflower.protocol.noise.difference import NegativeBinomialDifference
from wallflower.protocol.noise.gaussian import DiscreteGaussian, Skellam
from wallflower.protocol.noise.gaussian_sums import SumOfDiscreteGaussians
from wallflower.protocol.noise.laplace import DiscreteLaplace
from wallflower.protocol.noise.law import NoiseLaw
from wallflower.protocol.noise.radix import RadixPlan
from wallflower.protocol.privacy.mechanism import CohortMechanism
from wallflower.protocol.rewards.models import RewardModel
from wallflower.regret.simulation import Integers

# Largest standard deviation for which building a certified table is worth it.
_TABLE_DEVIATION = 100.0
# Numpy's Poisson sampler overflows past 2⁶³ and loses single units above 2⁵³.
_GENERATORS: dict[
    type[NoiseLaw], Callable[[Any, int, np.random.Generator], Integers]
] = {}


class CohortDraws:
    """Draws sums of cohorts of a reward model from one seed."""

    def __init__(self, model: RewardModel, seed: int) -> None:
        self._model = model
        self._generator = np.random.default_rng([seed, 1])
        self._bits = SeededBits.derived(seed, "fast engine")

    def totals(
        self,
        arms: NDArray[np.intp],
        cohort: CohortMechanism,
        survivors: int | None = None,
    ) -> Integers:
        """One decoded sum, in units of 1/g, for each entry of `arms`.

        `survivors` of the cohort's users answer; all of them unless told.
        """
        size, precision = cohort.cohort_size, cohort.precision
        came = size if survivors is None else survivors
        sums = self._model.rounded_sums(arms, came, precision, self._generator)
        served = cohort.server_noise()
        shares = cohort.total_noise(came) if served is None else None
        sums += total_noise(shares, len(arms), self._generator, self._bits)
        if cohort.radix is not None:
            sums += self._junk(len(arms), cohort.radix)
        wrapped = sums % cohort.modulus
        beyond = wrapped > size * precision + cohort.noise_bound
        decoded = np.where(beyond, wrapped - cohort.modulus, wrapped)
        # A trusted server adds its noise to the decoded sum, where nothing wraps.
        decoded += total_noise(served, len(arms), self._generator, self._bits)
        return decoded

    def _junk(self, count: int, radix: RadixPlan) -> Integers:
        """Errors of users who drew junk: from its level on, all digits are anything.

        The parity of a junk digit is fair up to far less than the pair budget.
        """
        errors = np.zeros(count, dtype=np.int64)
        draws, chance = radix.parties * radix.levels, float(radix.junk)
        events = self._generator.binomial(draws, chance, size=count)
        for index in np.repeat(np.arange(count), events).tolist():
            level = int(self._generator.integers(radix.levels))
            digits = int(self._generator.integers(1 << (radix.levels - level)))
            errors[index] = (int(errors[index]) + (digits << level)) % radix.modulus
        return errors


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
    """Draw how many of the users drew each value, a multinomial."""
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
