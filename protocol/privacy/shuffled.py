"""`shuffle-dp`: pure differential privacy through a shuffler."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from fractions import Fraction

from wallflower.protocol.errors import InputError
from wallflower.protocol.noise.radix import (
    PRIVACY_DELTA,
    SHUFFLED_PART,
    RadixPlan,
    distance_bits,
)
from wallflower.protocol.privacy.calibration import modulus_for, precision_for
from wallflower.protocol.privacy.guarantee import Guarantee
from wallflower.protocol.privacy.mechanism import CohortMechanism, Mechanism, register
from wallflower.protocol.privacy.pure import (
    PureCohort,
    PureDistributed,
    laplace_bound,
    laplace_tail,
)


@register
class PureShuffled(Mechanism):
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

    name = "shuffle-dp"
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
        bound = laplace_bound(shape, noise / precision, wrap_probability / 2)
        least = modulus_for(cohort_size, precision, bound)
        modulus = 1 << (least - 1).bit_length()
        return ShuffledCohort(
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
        return laplace_tail(noise, survivors, honest_floor)


@dataclass(frozen=True)
class ShuffledCohort(PureCohort):
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
MIXABLE = PureDistributed.name


@dataclass(frozen=True)
class MixedCohort(PureCohort):
    """`dist-dp` calibrated to one cohort whose shares a shuffler mixes."""

    @classmethod
    def of(cls, cohort: CohortMechanism) -> MixedCohort:
        """Take over the calibration; integers and noise are the same."""
        if type(cohort) is not PureCohort:
            raise InputError("mechanism", type(cohort).__name__, MIXABLE)
        distance_bits(cohort.epsilon)  # refuses a promise without meaning
        fields = dataclasses.fields(PureCohort)
        return cls(**{field.name: getattr(cohort, field.name) for field in fields})

    @property
    def view_delta(self) -> Fraction:
        """2⁻⁴⁰: how far shuffled batches of equal sums may differ, as a δ."""
        return PRIVACY_DELTA

    def guarantee(self) -> Guarantee:
        """(ε, 2⁻⁴⁰)-DP while h honest users answer and the shuffler keeps silent."""
        return Guarantee("pure", self.epsilon, "shuffler", None, self.view_delta)
