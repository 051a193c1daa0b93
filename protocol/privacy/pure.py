"""`dist-dp`: pure differential privacy without a trusted server."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from wallflower.protocol.noise.law import NoiseLaw
from wallflower.protocol.noise.laws import DiscreteLaplace, NegativeBinomialDifference
from wallflower.protocol.privacy.calibration import (
    WIDEST_EXACT_LAPLACE,
    Calibration,
    modulus_for,
    noise_bound,
    precision_for,
    sub_gamma_bound,
)
from wallflower.protocol.privacy.guarantee import Guarantee
from wallflower.protocol.privacy.mechanism import CohortMechanism, Mechanism, register

# The masses of more parts cancel in their recurrence and need ever more digits.
_LARGEST_EXACT_SHAPE = 16


@functools.lru_cache(maxsize=65536)
def laplace_parts(shape: Fraction, rate: Fraction) -> NoiseLaw:
    """The law of `shape` full discrete Laplace noises of scale 1/rate.

    One whole noise has closed forms of its own.
    """
    if shape == 1:
        return DiscreteLaplace(1 / rate)
    return NegativeBinomialDifference(shape, rate)


def laplace_bound(shape: Fraction, rate: Fraction, level: Fraction) -> int:
    """τ of so many parts: exact for one noise or few, else as of a sub-gamma law."""
    total = laplace_parts(shape, rate)
    if shape == 1:
        return total.two_sided_bound(level)
    variance_factor, tail = 2 * shape / rate**2, 1 / rate
    if shape > _LARGEST_EXACT_SHAPE:
        return sub_gamma_bound(variance_factor, tail, level)
    return noise_bound(total, level, variance_factor, tail, WIDEST_EXACT_LAPLACE)


@register
class PureDistributed(Mechanism):
    """Pólya shares that add up to discrete Laplace noise (Dist-DP-SE).

    Guarantee: (ε, 0)-DP. Unit of privacy: one user, one reward. Neighbours: the same
    users, one reward replaced by any other in [0, 1]. Trust: distributed; the secure
    sum hides all but the sum, and at least h users of the cohort are honest and
    present. Theorem: pure-DP via SecAgg of the paper, on the infinite divisibility of
    the discrete Laplace law (Goryczka and Xiong 2015, Thm 5.1).

    g = ⌈ε√n⌉; share γ⁺ − γ⁻ with γ ~ Pólya(1/h, e^{−ε/g}); h shares are Lap_ℤ(g/ε).

    Deviation: the paper takes shares of 1/n and assumes that all n users answer. One
    missing user then breaks ε (n = 100, ε = 0.1: 0.1045). Shares of 1/h hold ε while
    h answer, because further shares are independent noise, hence post-processing.
    """

    name = "dist-dp"
    label = "Dist-DP-SE"

    def calibrate(
        self, cohort_size: int, honest_floor: int, wrap_probability: Fraction
    ) -> CohortMechanism:
        """Shares for the floor, the bound for all n users."""
        precision = precision_for(self.epsilon, cohort_size)
        facts = Calibration(self.epsilon, cohort_size, honest_floor, precision)
        bound = laplace_bound(facts.shape(cohort_size), facts.rate, wrap_probability)
        modulus = modulus_for(cohort_size, precision, bound)
        return PureCohort(
            cohort_size, honest_floor, precision, bound, modulus, facts.epsilon
        )


@dataclass(frozen=True)
class PureCohort(CohortMechanism):
    """`dist-dp` calibrated to one cohort."""

    cohort_size: int
    honest_floor: int
    precision: int
    noise_bound: int
    modulus: int
    epsilon: Fraction

    def _shares(self, users: int) -> NoiseLaw:
        shape = Fraction(users, self.honest_floor)
        return laplace_parts(shape, self.epsilon / self.precision)

    def user_noise(self) -> NoiseLaw:
        """γ⁺ − γ⁻ of shape 1/h."""
        return self._shares(1)

    def node_noise(self, users: int) -> NoiseLaw:
        """One draw of shape users/h: the law is infinitely divisible."""
        return self._shares(users)

    def server_noise(self) -> NoiseLaw | None:
        """None: the server adds nothing."""
        return None

    def total_noise(self, survivors: int | None = None) -> NoiseLaw:
        """Shape survivors/h; exactly Lap_ℤ(g/ε) for h survivors."""
        return self._shares(self.cohort_size if survivors is None else survivors)

    def hiding_noise(self) -> NoiseLaw:
        """Lap_ℤ(g/ε), the shares of h users."""
        return self._shares(self.honest_floor)

    def total_log_mgf(self, argument: float, survivors: int | None = None) -> float:
        """The closed form of the law itself."""
        return self.total_noise(survivors).log_mgf(argument)

    def noise_log_mgf(self, survivors: int | None = None) -> Callable[[float], float]:
        """The closed form of the law itself, without looking the law up again."""
        return self.total_noise(survivors).log_mgf

    def guarantee(self) -> Guarantee:
        """(ε, 0)-DP while h honest users answer."""
        return Guarantee("pure", self.epsilon, "distributed")
