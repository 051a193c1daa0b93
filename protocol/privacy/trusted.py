"""The mechanisms of a trusted server: `central-dp` and `non-private`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from wallflower.protocol.noise.laplace import DiscreteLaplace
from wallflower.protocol.noise.law import NoiseLaw
from wallflower.protocol.privacy.calibration import SQRT2, precision_for
from wallflower.protocol.privacy.guarantee import Guarantee
from wallflower.protocol.privacy.mechanism import (
    NO_NOISE,
    CohortMechanism,
    Mechanism,
    register,
)

# A bandit without privacy does not round rewards. Randomized rounding to 1/1024 is
# unbiased and adds at most 2⁻²² to the variance of a reward.
_FINE_PRECISION = 1024


@dataclass(frozen=True)
class TrustedCohort(CohortMechanism):
    """Bare sums, and one noise of the server on top (none for `non-private`)."""

    epsilon: Fraction | None

    def user_noise(self) -> NoiseLaw | None:
        """None: users trust the server."""
        return None

    def node_noise(self, users: int) -> NoiseLaw | None:
        """None: users trust the server."""
        return None

    def server_noise(self) -> NoiseLaw | None:
        """Lap_ℤ(g/ε)."""
        if self.epsilon is None:
            return None
        return DiscreteLaplace(self.precision / self.epsilon)

    def total_noise(self, survivors: int | None = None) -> NoiseLaw | None:
        """Return the server's noise, whoever survives."""
        return self.server_noise()

    def hiding_noise(self) -> NoiseLaw | None:
        """Return the server's noise."""
        return self.server_noise()

    def noise_log_mgf(self, survivors: int | None = None) -> Callable[[float], float]:
        """Return the closed form of the server's noise; 0 without noise."""
        noise = self.server_noise()
        return (lambda argument: 0.0) if noise is None else noise.log_mgf

    def guarantee(self) -> Guarantee:
        """(ε, 0)-DP of what the server publishes, or nothing."""
        if self.epsilon is None:
            return Guarantee("none", None, "server")
        return Guarantee("pure", self.epsilon, "server")


@register
class _PureCentral(Mechanism):
    """A trusted server adds one discrete Laplace noise to the sum (CDP-SE).

    Guarantee: (ε, 0)-DP of everything the server publishes. Unit of privacy: one user,
    one reward. Neighbours: the same users, one reward replaced by any other in [0, 1].
    Trust: the server, which may see every reward. Theorem: central pure-DP via SecAgg
    of the paper's appendix.

    g = ⌈ε√n⌉; server noise Lap_ℤ(g/ε).
    """

    name = "central-dp"
    label = "Central-DP-SE"
    noise = "The server adds discrete Laplace noise to the sum."

    def calibrate(
        self, cohort_size: int, honest_floor: int, wrap_probability: Fraction
    ) -> CohortMechanism:
        """One noise on the sum, whoever answers."""
        precision = precision_for(self.epsilon, cohort_size)
        noise = DiscreteLaplace(precision / self.epsilon)
        bound = noise.two_sided_bound(wrap_probability)
        return TrustedCohort.from_bound(
            cohort_size, honest_floor, precision, bound, epsilon=self.epsilon
        )

    def paper_tail(self, survivors: int, honest_floor: int) -> tuple[float, float]:
        """One discrete Laplace noise, whoever answers."""
        return SQRT2 / float(self.epsilon), 1 / float(self.epsilon)


@register
class _NonPrivate(Mechanism):
    """Bare sums: what a bandit costs without privacy.

    Guarantee: none. Unit of privacy: none. Neighbours: none. Trust: the server, which
    sees every reward and publishes exact sums. Theorem: none.
    """

    name = "non-private"
    label = "SE"
    noise = "Nobody adds noise."
    noise_grows = NO_NOISE

    def calibrate(
        self, cohort_size: int, honest_floor: int, wrap_probability: Fraction
    ) -> CohortMechanism:
        """No noise, a fine grid."""
        return TrustedCohort.from_bound(
            cohort_size, honest_floor, _FINE_PRECISION, 0, epsilon=None
        )

    def paper_tail(self, survivors: int, honest_floor: int) -> tuple[float, float]:
        """No noise, no tail."""
        return 0.0, 0.0
