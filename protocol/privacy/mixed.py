"""What `dist-dp` promises when its integers are split, mixed and added up.

A heap of shares tells the sum and, up to a statistical distance of 2^−σ, nothing else
(docs/shuffling.md). If the sum is ε-private, the heap is (ε, δ)-private with
δ = (1 + e^ε)·2^−σ. σ is chosen such that this is at most 2⁻⁴⁰, so that everybody who
adds up spends takes the same from δ for each of them.

Deviation: σ = 40 alone would give δ = (1 + e^ε)·2⁻⁴⁰; ε = 1 takes σ = 42, which costs
less than half a message.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from fractions import Fraction

from wallflower.protocol.errors import InputError
from wallflower.protocol.noise.distance import PRIVACY_DELTA, distance_bits
from wallflower.protocol.privacy.guarantee import Guarantee
from wallflower.protocol.privacy.mechanism import CohortMechanism
from wallflower.protocol.privacy.pure import PureCohort, PureDistributed

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
        """2⁻⁴⁰: how far heaps of equal sums may differ, as a δ."""
        return PRIVACY_DELTA

    def guarantee(self) -> Guarantee:
        """(ε, 2⁻⁴⁰)-DP while h honest users answer and the shuffler keeps silent."""
        return Guarantee("pure", self.epsilon, "shuffler", None, self.view_delta)
