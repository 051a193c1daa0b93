"""`dist-rdp`: Rényi differential privacy without a trusted server."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from wallflower.protocol.noise.gaussian import DiscreteGaussian, Skellam
from wallflower.protocol.noise.gaussian_sums import SumOfDiscreteGaussians
from wallflower.protocol.noise.law import NoiseLaw
from wallflower.protocol.privacy.calibration import (
    SQRT2,
    check_share,
    find_widening,
    noise_bound,
    precision_for,
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
class _RenyiDistributed(Mechanism):
    """Skellam shares that add up to Skellam noise (Dist-RDP-SE).

    Guarantee: (α, ε(α))-RDP for every integer α ≥ 2 with the curve of
    `protocol.privacy.guarantee.skellam_bound`; the exact divergence, computed by
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
        share = (precision / self.epsilon) ** 2 / honest_floor
        check_share(share, honest_floor)
        variance = share * cohort_size
        bound = noise_bound(
            skellam(variance), wrap_probability, variance, Fraction(1, 3)
        )
        return _RenyiCohort.from_bound(
            cohort_size, honest_floor, precision, bound, epsilon=self.epsilon
        )

    def paper_tail(self, survivors: int, honest_floor: int) -> tuple[float, float]:
        """Return the paper's bound on Skellam noise and the rounding."""
        epsilon, scale = float(self.epsilon), float(self.scale)
        sigma = (2 + SQRT2 / scale) / epsilon * find_widening(survivors, honest_floor)
        return sigma, SQRT2 / (scale * epsilon)


@dataclass(frozen=True)
class _RenyiCohort(SharedNoise):
    """`dist-rdp` calibrated to one cohort."""

    def shares(self, users: int) -> NoiseLaw:
        """Sk(0, users/h · g²/ε²)."""
        full = (self.precision / self.epsilon) ** 2
        return skellam(full * Fraction(users, self.honest_floor))

    def guarantee(self) -> Guarantee:
        """The Rényi curve of this cohort's own g, while h honest users answer."""
        return Guarantee("renyi", self.epsilon, "distributed", self.precision)


# --- `dist-cdp`: concentrated differential privacy without a trusted server.


# ε̂ is stated as a rational on this grid, rounded up.
_GRID = 10**15


@register
class _ConcentratedDistributed(Mechanism):
    """Discrete Gaussian shares whose sum is nearly discrete Gaussian (Dist-CDP-SE).

    Guarantee: ½ε̂²-CDP with ε̂ = min{√(ε² + ξ/2), ε + ξ}, see
    `_concentrated_epsilon`. Unit of
    privacy: one user, one reward. Neighbours: the same users, one reward replaced by
    any other in [0, 1]. Trust: distributed; the secure sum hides all but the sum, and
    at least h users of the cohort are honest and present. Theorem: CDP via SecAgg of
    the paper's appendix, on Kairouz, Liu and Steinke 2021.

    g = ⌈sε√n⌉; share N_ℤ(0, g²/(hε²)).

    Deviation: s ≥ 1.5 is required (the paper allows s ≥ 1, where ξ grows with n until
    T = 10⁷ turns ε = 0.1 into 0.234), and ξ is summed for the real number of shares.
    Deviation: variance g²/(hε²) per share instead of g²/(nε²), so that dropouts down
    to the floor cost no privacy; further shares are independent noise.
    """

    name = "dist-cdp"
    label = "Dist-CDP-SE"
    noise = "Every person adds discrete Gaussian noise."
    smallest_scale = Fraction(3, 2)

    def calibrate(
        self, cohort_size: int, honest_floor: int, wrap_probability: Fraction
    ) -> CohortMechanism:
        """Shares for the floor, the bound for all n users."""
        precision = precision_for(self.epsilon, cohort_size, self.scale)
        share = (precision / self.epsilon) ** 2 / honest_floor
        check_share(share, honest_floor)
        total = SumOfDiscreteGaussians(cohort_size, share)
        variance = share * cohort_size
        bound = noise_bound(total, wrap_probability, variance, Fraction(0))
        return _ConcentratedCohort.from_bound(
            cohort_size, honest_floor, precision, bound, epsilon=self.epsilon
        )

    def paper_tail(self, survivors: int, honest_floor: int) -> tuple[float, float]:
        """Return a Gaussian tail, which has no linear part."""
        sigma = SQRT2 * (1 + 1 / float(self.scale)) / float(self.epsilon)
        return sigma * find_widening(survivors, honest_floor), 0.0


@functools.lru_cache(maxsize=4096)
def _concentrated_epsilon(
    epsilon: Fraction, share_variance: Fraction, shares: int
) -> Fraction:
    """ε̂ = min{√(ε² + ξ/2), ε + ξ}, rounded up to a multiple of 10⁻¹⁵.

    ξ = 10 Σ_{k<n} e^{−2π²σ²k/(k+1)} bounds |ln(P[Z = x]/P[W = x])| between the sum Z of
    n discrete Gaussians and the discrete Gaussian W of the summed variance (Kairouz,
    Liu and Steinke 2021). A single discrete Gaussian has no excess.
    """
    if shares == 1:
        return epsilon
    excess = Fraction(SumOfDiscreteGaussians(shares, share_variance).closeness())
    square = (epsilon**2 + excess / 2) * _GRID**2
    choices = (math.ceil((epsilon + excess) * _GRID), math.isqrt(math.ceil(square)) + 1)
    return Fraction(min(choices), _GRID)


@dataclass(frozen=True)
class _ConcentratedCohort(SharedNoise):
    """`dist-cdp` calibrated to one cohort."""

    @property
    def share_variance(self) -> Fraction:
        """g²/(hε²), the variance parameter of one user's noise."""
        return (self.precision / self.epsilon) ** 2 / self.honest_floor

    def shares(self, users: int) -> NoiseLaw:
        """Return the sum of as many N_ℤ(0, g²/(hε²))."""
        return SumOfDiscreteGaussians(users, self.share_variance)

    def user_noise(self) -> NoiseLaw:
        """N_ℤ(0, g²/(hε²))."""
        return DiscreteGaussian(self.share_variance)

    def node_noise(self, users: int) -> NoiseLaw | None:
        """None for many users: a sum of discrete Gaussians is not one itself."""
        return self.user_noise() if users == 1 else None

    def noise_log_mgf(self, survivors: int | None = None) -> Callable[[float], float]:
        """σ²λ²/2, an upper bound (Canonne, Kamath and Steinke 2020, Lemma 12)."""
        count = self.cohort_size if survivors is None else survivors
        variance = float(self.share_variance * count)
        return lambda argument: variance * argument**2 / 2

    def guarantee(self) -> Guarantee:
        """½ε̂²-CDP while h honest users answer."""
        epsilon = _concentrated_epsilon(
            self.epsilon, self.share_variance, self.honest_floor
        )
        return Guarantee("concentrated", epsilon, "distributed")
