"""`dist-rdp`: Rényi differential privacy without a trusted server."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from fractions import Fraction

from wallflower.protocol.noise.law import NoiseLaw
from wallflower.protocol.noise.laws import Skellam
from wallflower.protocol.privacy.calibration import (
    SQRT2,
    Calibration,
    check_share,
    noise_bound,
    precision_for,
    widened,
)
from wallflower.protocol.privacy.guarantee import Guarantee
from wallflower.protocol.privacy.mechanism import (
    CohortMechanism,
    Mechanism,
    SharedNoise,
    register,
)


@functools.lru_cache(maxsize=65536)
def skellam(variance: Fraction) -> Skellam:
    """Remember the laws: radii ask for the same ones thousands of times."""
    return Skellam(variance)


@register
class RenyiDistributed(Mechanism):
    """Skellam shares that add up to Skellam noise (Dist-RDP-SE).

    Guarantee: (α, ε(α))-RDP for every integer α ≥ 2 with the curve of
    `protocol.guarantee.skellam_bound`; the exact divergence, computed by
    `protocol.accounting`, is smaller. Unit of privacy: one user, one reward.
    Neighbours: the same users, one reward replaced by any other in [0, 1]. Trust:
    distributed; the secure sum hides all but the sum, and at least h users of the
    cohort are honest and present. Theorem: RDP via SecAgg of the paper, on Agarwal,
    Kairouz and Liu 2021, Thm 3.5.

    g = ⌈sε√n⌉; share Sk(0, g²/(hε²)); h shares are Sk(0, g²/ε²).

    Deviation: the curve's second term is 3ε²/(2g), not the printed 3ε²/(2s), see
    `skellam_bound`. Deviation: variance g²/(hε²) per share instead of g²/(nε²), so
    that dropouts down to the floor cost no privacy.
    """

    name = "dist-rdp"
    label = "Dist-RDP-SE"
    noise = "Every person adds a share of Skellam noise."

    def calibrate(
        self, cohort_size: int, honest_floor: int, wrap_probability: Fraction
    ) -> CohortMechanism:
        """Shares for the floor, the bound for all n users."""
        precision = precision_for(self.epsilon, cohort_size, self.scale)
        facts = Calibration(self.epsilon, cohort_size, honest_floor, precision)
        check_share(facts)
        variance = facts.variance * facts.shape(cohort_size)
        bound = noise_bound(
            skellam(variance), wrap_probability, variance, Fraction(1, 3)
        )
        return RenyiCohort.bounded(facts, bound)

    def paper_tail(self, survivors: int, honest_floor: int) -> tuple[float, float]:
        """The paper's bound on Skellam noise and the rounding."""
        epsilon, scale = float(self.epsilon), float(self.scale)
        sigma = (2 + SQRT2 / scale) / epsilon * widened(survivors, honest_floor)
        return sigma, SQRT2 / (scale * epsilon)


@dataclass(frozen=True)
class RenyiCohort(SharedNoise):
    """`dist-rdp` calibrated to one cohort."""

    def shares(self, users: int) -> NoiseLaw:
        """Sk(0, users/h · g²/ε²)."""
        full = (self.precision / self.epsilon) ** 2
        return skellam(full * Fraction(users, self.honest_floor))

    def guarantee(self) -> Guarantee:
        """The Rényi curve of this cohort's own g, while h honest users answer."""
        return Guarantee("renyi", self.epsilon, "distributed", self.precision)
