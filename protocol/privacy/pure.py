"""`dist-dp`: pure differential privacy without a trusted server."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from fractions import Fraction

from wallflower.protocol.noise.difference import NegativeBinomialDifference
from wallflower.protocol.noise.laplace import DiscreteLaplace
from wallflower.protocol.noise.law import NoiseLaw
from wallflower.protocol.privacy.calibration import (
    SQRT2,
    WIDEST_EXACT_LAPLACE,
    Calibration,
    noise_bound,
    precision_for,
    sub_gamma_bound,
    widened,
)
from wallflower.protocol.privacy.guarantee import Guarantee
from wallflower.protocol.privacy.mechanism import (
    PER_USER,
    CohortMechanism,
    Mechanism,
    SharedNoise,
    register,
)

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


def laplace_tail(
    epsilon: float, survivors: int, honest_floor: int
) -> tuple[float, float]:
    """(√2/ε, 1/ε) of the paper's radius, widened for shares calibrated to the floor."""
    return SQRT2 / epsilon * widened(survivors, honest_floor), 1 / epsilon


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
    noise = (
        "Every person adds a share of discrete Laplace noise (a difference of two "
        "negative binomial draws)."
    )

    def calibrate(
        self, cohort_size: int, honest_floor: int, wrap_probability: Fraction
    ) -> CohortMechanism:
        """Shares for the floor, the bound for all n users."""
        precision = precision_for(self.epsilon, cohort_size)
        facts = Calibration(self.epsilon, cohort_size, honest_floor, precision)
        bound = laplace_bound(facts.shape(cohort_size), facts.rate, wrap_probability)
        return PureCohort.bounded(facts, bound)

    def paper_tail(self, survivors: int, honest_floor: int) -> tuple[float, float]:
        """One discrete Laplace noise, as many more as users answer beyond the floor."""
        return laplace_tail(float(self.epsilon), survivors, honest_floor)


@dataclass(frozen=True)
class PureCohort(SharedNoise):
    """`dist-dp` calibrated to one cohort."""

    def shares(self, users: int) -> NoiseLaw:
        """γ⁺ − γ⁻ of shape users/h; exactly Lap_ℤ(g/ε) for h users."""
        shape = Fraction(users, self.honest_floor)
        return laplace_parts(shape, self.epsilon / self.precision)

    def guarantee(self) -> Guarantee:
        """(ε, 0)-DP while h honest users answer."""
        return Guarantee("pure", self.epsilon, "distributed")


# --- `local-dp`: pure differential privacy while trusting nobody.


@register
class PureLocal(Mechanism):
    """Every user adds a full discrete Laplace noise (LDP-SE).

    Guarantee: (ε, 0)-DP of each single message, hence of everything computed from
    them. Unit of privacy: one user, one reward. Neighbours: one reward replaced by any
    other in [0, 1]. Trust: nobody; the secure sum may be absent or broken. Theorem:
    local pure-DP via SecAgg of the paper's appendix.

    g = ⌈ε√n⌉; share Lap_ℤ(g/ε); n shares are a negative binomial difference of shape n.

    Deviation: the paper's τ = (cg/ε)√(2n ln(2/p)) leaves c open and is too small for
    n < 2 ln(2/p). Lap_ℤ(t) is sub-gamma with v = 2t², c = t, so
    τ = ⌈(g/ε)(2√(n ln(2/p)) + ln(2/p))⌉ holds for every n.
    """

    name = "local-dp"
    label = "LDP-SE"
    noise = "Every person randomises the outcome alone."
    noise_grows = PER_USER

    def calibrate(
        self, cohort_size: int, honest_floor: int, wrap_probability: Fraction
    ) -> CohortMechanism:
        """Full noise from each user; the floor plays no part."""
        precision = precision_for(self.epsilon, cohort_size)
        facts = Calibration(self.epsilon, cohort_size, honest_floor, precision)
        noise_scale = precision / self.epsilon
        bound = sub_gamma_bound(
            2 * cohort_size * noise_scale**2, noise_scale, wrap_probability
        )
        return LocalCohort.bounded(facts, bound)

    def paper_tail(self, survivors: int, honest_floor: int) -> tuple[float, float]:
        """As many noises as survivors; the floor plays no part.

        Deviation: the paper's constant c is unspecified; Lap_ℤ(t) is sub-gamma with
        variance factor 2t² and scale t, which holds for every n.
        """
        return 2 * math.sqrt(survivors) / float(self.epsilon), 1 / float(self.epsilon)


@dataclass(frozen=True)
class LocalCohort(SharedNoise):
    """`local-dp` calibrated to one cohort."""

    def shares(self, users: int) -> NoiseLaw:
        """As many full noises; each user's own is still in it."""
        return laplace_parts(Fraction(users), self.epsilon / self.precision)

    def hiding_noise(self) -> NoiseLaw:
        """Return the user's own noise."""
        return self.user_noise()

    def guarantee(self) -> Guarantee:
        """(ε, 0)-DP of every message by itself."""
        return Guarantee("pure", self.epsilon, "nobody")
