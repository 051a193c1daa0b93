"""`local-dp`: pure differential privacy while trusting nobody."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from wallflower.protocol.noise.law import NoiseLaw
from wallflower.protocol.privacy.calibration import (
    modulus_for,
    precision_for,
    sub_gamma_bound,
)
from wallflower.protocol.privacy.guarantee import Guarantee
from wallflower.protocol.privacy.mechanism import CohortMechanism, Mechanism, register
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

    def calibrate(
        self, cohort_size: int, honest_floor: int, wrap_probability: Fraction
    ) -> CohortMechanism:
        """Full noise from each user; the floor plays no part."""
        precision = precision_for(self.epsilon, cohort_size)
        noise_scale = precision / self.epsilon
        bound = sub_gamma_bound(
            2 * cohort_size * noise_scale**2, noise_scale, wrap_probability
        )
        modulus = modulus_for(cohort_size, precision, bound)
        return LocalCohort(
            cohort_size, honest_floor, precision, bound, modulus, self.epsilon
        )


@dataclass(frozen=True)
class LocalCohort(CohortMechanism):
    """`local-dp` calibrated to one cohort."""

    cohort_size: int
    honest_floor: int
    precision: int
    noise_bound: int
    modulus: int
    epsilon: Fraction

    def _noises(self, users: int) -> NoiseLaw:
        return laplace_parts(Fraction(users), self.epsilon / self.precision)

    def user_noise(self) -> NoiseLaw:
        """Lap_ℤ(g/ε)."""
        return self._noises(1)

    def node_noise(self, users: int) -> NoiseLaw:
        """One draw of shape `users`; each user's own noise is still in it."""
        return self._noises(users)

    def server_noise(self) -> NoiseLaw | None:
        """None: the server adds nothing."""
        return None

    def total_noise(self, survivors: int | None = None) -> NoiseLaw:
        """As many full noises as survivors."""
        return self._noises(self.cohort_size if survivors is None else survivors)

    def hiding_noise(self) -> NoiseLaw:
        """Her own noise."""
        return self.user_noise()

    def total_log_mgf(self, argument: float, survivors: int | None = None) -> float:
        """The closed form of the law itself."""
        return self.total_noise(survivors).log_mgf(argument)

    def noise_log_mgf(self, survivors: int | None = None) -> Callable[[float], float]:
        """The closed form of the law itself, without looking the law up again."""
        return self.total_noise(survivors).log_mgf

    def guarantee(self) -> Guarantee:
        """(ε, 0)-DP of every message by itself."""
        return Guarantee("pure", self.epsilon, "nobody")
