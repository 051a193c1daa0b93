"""`dist-dp`, `shuffle-dp` and `local-dp`: pure privacy without a trusted server."""

from __future__ import annotations

import dataclasses
import functools
import math
from dataclasses import dataclass, field
from fractions import Fraction

from wallflower.protocol.errors import InputError
from wallflower.protocol.noise.difference import NegativeBinomialDifference
from wallflower.protocol.noise.laplace import DiscreteLaplace
from wallflower.protocol.noise.law import NoiseLaw
from wallflower.protocol.noise.radix import (
    PRIVACY_DELTA,
    SHUFFLED_PART,
    RadixPlan,
    distance_bits,
)
from wallflower.protocol.privacy.calibration import (
    SQRT2,
    WIDEST_EXACT_LAPLACE,
    find_widening,
    modulus_for,
    noise_bound,
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

PURELY_SHUFFLED = "shuffle-dp"
# The masses of more parts cancel in their recurrence and need ever more digits.
_LARGEST_EXACT_SHAPE = 16


@functools.lru_cache(maxsize=65536)
def _laplace_parts(shape: Fraction, rate: Fraction) -> NoiseLaw:
    """Return the law of `shape` full discrete Laplace noises of scale 1/rate.

    One whole noise has closed forms of its own.
    """
    if shape == 1:
        return DiscreteLaplace(1 / rate)
    return NegativeBinomialDifference(shape, rate)


def _laplace_bound(shape: Fraction, rate: Fraction, level: Fraction) -> int:
    """τ of so many parts: exact for one noise or few, else as of a sub-gamma law."""
    total = _laplace_parts(shape, rate)
    if shape == 1:
        return total.two_sided_bound(level)
    variance_factor, tail = 2 * shape / rate**2, 1 / rate
    if shape > _LARGEST_EXACT_SHAPE:
        return sub_gamma_bound(variance_factor, tail, level)
    return noise_bound(total, level, variance_factor, tail, WIDEST_EXACT_LAPLACE)


def _laplace_tail(
    epsilon: float, survivors: int, honest_floor: int
) -> tuple[float, float]:
    """(√2/ε, 1/ε) of the paper's radius, widened for shares calibrated to the floor."""
    return SQRT2 / epsilon * find_widening(survivors, honest_floor), 1 / epsilon


@register
class _PureDistributed(Mechanism):
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
        shape = Fraction(cohort_size, honest_floor)
        # One reward moves the sum by at most g, and Lap_ℤ(g/ε) falls by e^{−ε/g} a
        # step, so the loss is ε.
        bound = _laplace_bound(shape, self.epsilon / precision, wrap_probability)
        return _PureCohort.from_bound(
            cohort_size, honest_floor, precision, bound, epsilon=self.epsilon
        )

    def paper_tail(self, survivors: int, honest_floor: int) -> tuple[float, float]:
        """One discrete Laplace noise, as many more as users answer beyond the floor."""
        return _laplace_tail(float(self.epsilon), survivors, honest_floor)


@dataclass(frozen=True)
class _PureCohort(SharedNoise):
    """`dist-dp` calibrated to one cohort."""

    def shares(self, users: int) -> NoiseLaw:
        """γ⁺ − γ⁻ of shape users/h; exactly Lap_ℤ(g/ε) for h users."""
        shape = Fraction(users, self.honest_floor)
        return _laplace_parts(shape, self.epsilon / self.precision)

    def guarantee(self) -> Guarantee:
        """(ε, 0)-DP while h honest users answer."""
        return Guarantee("pure", self.epsilon, "distributed")


# --- `local-dp`: pure differential privacy while trusting nobody.


@register
class _PureLocal(Mechanism):
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
        noise_scale = precision / self.epsilon
        bound = sub_gamma_bound(
            2 * cohort_size * noise_scale**2, noise_scale, wrap_probability
        )
        return _LocalCohort.from_bound(
            cohort_size, honest_floor, precision, bound, epsilon=self.epsilon
        )

    def paper_tail(self, survivors: int, honest_floor: int) -> tuple[float, float]:
        """As many noises as survivors; the floor plays no part.

        Deviation: the paper's constant c is unspecified; Lap_ℤ(t) is sub-gamma with
        variance factor 2t² and scale t, which holds for every n.
        """
        return 2 * math.sqrt(survivors) / float(self.epsilon), 1 / float(self.epsilon)


@dataclass(frozen=True)
class _LocalCohort(SharedNoise):
    """`local-dp` calibrated to one cohort."""

    def shares(self, users: int) -> NoiseLaw:
        """As many full noises; each user's own is still in it."""
        return _laplace_parts(Fraction(users), self.epsilon / self.precision)

    def hiding_noise(self) -> NoiseLaw:
        """Return the user's own noise."""
        return self.user_noise()

    def guarantee(self) -> Guarantee:
        """(ε, 0)-DP of every message by itself."""
        return Guarantee("pure", self.epsilon, "nobody")


# --- `shuffle-dp`: pure differential privacy through a shuffler.


@register
class _PureShuffled(Mechanism):
    """Pólya shares at ε′ = 0.99 ε, sent through a shuffler that costs η = 0.01 ε.

    Guarantee: (ε, 0)-DP, ε = ε′ + η. Unit of privacy: one user, one reward.
    Neighbours: the same users, one reward replaced by any other in [0, 1]. Trust:
    distributed; the shuffler and the server do not collude, and at least h users of the
    cohort are honest and present. Theorem: pure DP via shuffling of the paper, with the
    radix-2 randomizer for its secure shuffling (docs/shuffling.md).

    m = 2^L ≥ ng + 2τ + 1. Half of the wrap probability is for the wrap-around, half
    for the radix-2 randomizer's junk, either of which makes the sum wrong.

    Deviation: the paper splits ε̂ = ε/4, ε′ = ε/2, which doubles the noise, and cites a
    randomizer of O(n^2.5) messages a user.
    """

    name = PURELY_SHUFFLED
    label = "Shuffle-DP-SE"
    noise = (
        "Every person adds a share of discrete Laplace noise and splits the answer "
        "into messages that a shuffler mixes with everybody's."
    )
    shuffled = True

    def calibrate(
        self, cohort_size: int, honest_floor: int, wrap_probability: Fraction
    ) -> CohortMechanism:
        """Shares for the floor, the bound and the messages for all n users."""
        noise = self.epsilon * (1 - SHUFFLED_PART)
        precision = precision_for(noise, cohort_size)
        shape = Fraction(cohort_size, honest_floor)
        bound = _laplace_bound(shape, noise / precision, wrap_probability / 2)
        least = modulus_for(cohort_size, precision, bound)
        modulus = 1 << (least - 1).bit_length()
        return _ShuffledCohort(
            cohort_size=cohort_size,
            honest_floor=honest_floor,
            precision=precision,
            noise_bound=bound,
            modulus=modulus,
            epsilon=noise,
            radix=RadixPlan.of_cohort(
                cohort_size, modulus, self.epsilon, wrap_probability
            ),
        )

    def paper_tail(self, survivors: int, honest_floor: int) -> tuple[float, float]:
        """As of `dist-dp` at ε′.

        Deviation: the paper halves ε for its shuffler; ours leaves 0.99 ε for noise.
        """
        noise = float(self.epsilon * (1 - SHUFFLED_PART))
        return _laplace_tail(noise, survivors, honest_floor)


@dataclass(frozen=True)
class _ShuffledCohort(_PureCohort):
    """`shuffle-dp` calibrated to one cohort; `epsilon` is ε′, what the noise gives."""

    radix: RadixPlan = field(kw_only=True)

    @property
    def view_loss(self) -> Fraction:
        """η: what the shuffled batch tells beyond the sum."""
        return self.radix.budget

    def guarantee(self) -> Guarantee:
        """(ε′ + η, 0)-DP while h honest users answer and the shuffler keeps silent."""
        return Guarantee("pure", self.epsilon + self.view_loss, "shuffler")


# --- What `dist-dp` promises when its integers are split, mixed and added up.
#
# A shuffled batch of shares tells the sum and, up to a statistical distance of 2^−σ,
# nothing else (docs/shuffling.md). If the sum is ε-private, the batch is (ε, δ)-private
# with
# δ = (1 + e^ε)·2^−σ. σ is chosen such that this is at most 2⁻⁴⁰, so that everybody who
# adds up spends takes the same from δ for each of them.
#
# Deviation: σ = 40 alone would give δ = (1 + e^ε)·2⁻⁴⁰; ε = 1 takes σ = 42, which costs
# less than half a message.


# Composition with a δ of its own is a theorem for pure promises: such a mechanism is
# one that with probability δ tells all and else moves the odds by e^ε (Kairouz, Oh and
# Viswanath 2015, Thm 3.3). Curves of Rényi divergences have no such statement.
MIXABLE = _PureDistributed.name


@dataclass(frozen=True)
class MixedCohort(_PureCohort):
    """`dist-dp` calibrated to one cohort whose shares a shuffler mixes."""

    @classmethod
    def of(cls, cohort: CohortMechanism) -> MixedCohort:
        """Take over the calibration; integers and noise are the same."""
        if type(cohort) is not _PureCohort:
            name = type(cohort).__name__.lstrip("_")
            raise InputError("mechanism", name, MIXABLE)
        distance_bits(cohort.epsilon)  # refuses a promise without meaning
        fields = dataclasses.fields(_PureCohort)
        return cls(**{field.name: getattr(cohort, field.name) for field in fields})

    @property
    def view_delta(self) -> Fraction:
        """2⁻⁴⁰: how far shuffled batches of equal sums may differ, as a δ."""
        return PRIVACY_DELTA

    def guarantee(self) -> Guarantee:
        """(ε, 2⁻⁴⁰)-DP while h honest users answer and the shuffler keeps silent."""
        return Guarantee("pure", self.epsilon, "shuffler", None, self.view_delta)
