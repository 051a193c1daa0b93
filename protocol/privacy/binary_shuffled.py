"""The peer: approximate differential privacy by shuffled bits, only simulated."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from wallflower.protocol.noise.binomial import CentredBinomial
from wallflower.protocol.noise.law import NoiseLaw
from wallflower.protocol.privacy.calibration import modulus_for
from wallflower.protocol.privacy.guarantee import Guarantee
from wallflower.protocol.privacy.mechanism import CohortMechanism, Mechanism, register

PRIVACY_DELTA = Fraction(1, 10**6)


@register
class BinaryShuffled(Mechanism):
    """Shuffled bits with fair coins among them (Tenenbaum et al. 2021).

    Guarantee: (ε, 10⁻⁶)-DP. Unit of privacy: one user, one reward. Neighbours: the same
    users, one reward replaced by any other in [0, 1]. Trust: distributed; shuffler and
    server do not collude. Theorem: Tenenbaum, Kaplan, Mansour and Stemmer 2021, the
    binary summation protocol of section 3: every user sends her bit, and users together
    send Θ(ln(1/δ)/ε²) fair coins.

    g = 1: rewards are rounded at random to 0 or 1; noise Binomial(N, ½) − N/2.

    Deviation: N is the smallest number for which this noise is (ε, δ)-private, by
    summing its law in doubles, and exactly N coins are in every heap. The published
    constant and the users' independent choice who sends coins cost more: what is
    simulated is the best the protocol could do.
    """

    name = "shuffle-binary"
    label = "SDP-AE noise"
    noise = "Every person sends a bit, and fair coins among which a shuffler hides it."
    shuffled = True
    simulated_only = True

    def calibrate(
        self, cohort_size: int, honest_floor: int, wrap_probability: Fraction
    ) -> CohortMechanism:
        """As many coins as δ asks for, whoever answers."""
        coins = coins_for(self.epsilon, PRIVACY_DELTA)
        bound = CentredBinomial(coins).two_sided_bound(wrap_probability)
        modulus = modulus_for(cohort_size, 1, bound)
        return BinaryCohort(
            cohort_size,
            honest_floor,
            1,
            noise_bound=bound,
            modulus=modulus,
            epsilon=self.epsilon,
            coins=coins,
        )


@functools.lru_cache(maxsize=256)
def coins_for(epsilon: Fraction, privacy_delta: Fraction) -> int:
    """Smallest even N whose binomial law and its shift by one are (ε, δ)-close.

    Examples
    --------
    >>> coins_for(Fraction(1), Fraction(1, 10**6))
    80
    """
    allowed = float(privacy_delta)
    low, high = 0, 2
    while hockey_stick(high, float(epsilon)) > allowed:
        low, high = high, 2 * high
    while high - low > 2:
        middle = (low + high) // 4 * 2
        inside = hockey_stick(middle, float(epsilon)) <= allowed
        low, high = (low, middle) if inside else (middle, high)
    return high


def hockey_stick(coins: int, epsilon: float) -> float:
    """δ(ε) between Binomial(N, ½) and itself plus one."""
    log_factorials = np.concatenate(
        ([0.0], np.cumsum(np.log(np.arange(1, coins + 1, dtype=np.float64))))
    )
    whole = log_factorials[-1] - coins * math.log(2)
    masses = np.exp(whole - log_factorials - log_factorials[::-1])
    shifted = np.concatenate(([0.0], masses[:-1]))
    return float(np.maximum(masses - math.exp(epsilon) * shifted, 0.0).sum())


@dataclass(frozen=True)
class BinaryCohort(CohortMechanism):
    """`shuffle-binary` calibrated to one cohort."""

    epsilon: Fraction
    coins: int

    @property
    def view_delta(self) -> Fraction:
        """δ, of the coins themselves."""
        return PRIVACY_DELTA

    def user_noise(self) -> NoiseLaw | None:
        """None: the coins are the heap's, not one user's."""
        return None

    def node_noise(self, users: int) -> NoiseLaw | None:
        """None, as of a user."""
        return None

    def total_noise(self, survivors: int | None = None) -> NoiseLaw:
        """All coins of the heap."""
        return CentredBinomial(self.coins)

    def hiding_noise(self) -> NoiseLaw:
        """All coins of the heap."""
        return CentredBinomial(self.coins)

    def noise_log_mgf(self, survivors: int | None = None) -> Callable[[float], float]:
        """The closed form of the law itself."""
        return CentredBinomial(self.coins).log_mgf

    def guarantee(self) -> Guarantee:
        """(ε, 10⁻⁶)-DP while the shuffler keeps silent."""
        return Guarantee("pure", self.epsilon, "shuffler", None, self.view_delta)
