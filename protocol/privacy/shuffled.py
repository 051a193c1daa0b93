"""`shuffle-dp`: pure differential privacy through a shuffler."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

from wallflower.protocol.noise.radix import HEAP_PART, RadixPlan
from wallflower.protocol.privacy.calibration import modulus_for, precision_for
from wallflower.protocol.privacy.guarantee import Guarantee
from wallflower.protocol.privacy.mechanism import CohortMechanism, Mechanism, register
from wallflower.protocol.privacy.pure import (
    PureCohort,
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
        noise = self.epsilon * (1 - HEAP_PART)
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
        noise = float(self.epsilon * (1 - HEAP_PART))
        return laplace_tail(noise, survivors, honest_floor)


@dataclass(frozen=True)
class ShuffledCohort(PureCohort):
    """`shuffle-dp` calibrated to one cohort; `epsilon` is ε′, what the noise gives."""

    radix: RadixPlan = field(kw_only=True)

    @property
    def view_loss(self) -> Fraction:
        """η: what the heap tells beyond the sum."""
        return self.radix.budget

    def guarantee(self) -> Guarantee:
        """(ε′ + η, 0)-DP while h honest users answer and the shuffler keeps silent."""
        return Guarantee("pure", self.epsilon + self.view_loss, "shuffler")
