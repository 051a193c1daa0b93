"""`local-dp`: pure differential privacy while trusting nobody."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from wallflower.protocol.noise.law import NoiseLaw
from wallflower.protocol.privacy.calibration import (
    Calibration,
    precision_for,
    sub_gamma_bound,
)
from wallflower.protocol.privacy.guarantee import Guarantee
from wallflower.protocol.privacy.mechanism import (
    PER_USER,
    CohortMechanism,
    Mechanism,
    SharedNoise,
    register,
)
from wallflower.protocol.privacy.pure import laplace_parts


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
        """Her own noise."""
        return self.user_noise()

    def guarantee(self) -> Guarantee:
        """(ε, 0)-DP of every message by itself."""
        return Guarantee("pure", self.epsilon, "nobody")
