"""What a user sends through a shuffler, in each mode, and what sealing it costs."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from wallflower.protocol.noise.radix import RadixPlan, distance_bits
from wallflower.protocol.privacy.mechanism import CohortMechanism
from wallflower.protocol.privacy.pure import MixedCohort
from wallflower.protocol.secure_sum.backends import SHUFFLE, backend_modulus
from wallflower.protocol.secure_sum.shuffle.mixing import share_bytes, shares_for
from wallflower.protocol.secure_sum.shuffle.plan import MIXED, PURE
from wallflower.protocol.secure_sum.shuffle.seals import HYBRID, PLAIN, sealed_bytes

# A seal is a fresh X25519 key and an agreement: 310,990 and 618,831 cycles of OpenSSL
# 3.1.1 on Airmont, a core of phones (table of lib25519 20230630), here at 2.2 GHz.
PHONE_SEAL_S = (310_990 + 618_831) / 2.2e9
_TYPICAL_WRAP = Fraction(1, 10**6)


@dataclass(frozen=True, slots=True)
class Sent:
    """What one user who is a node alone sends.

    Attributes
    ----------
    mode : ``pure`` or ``mixed``.
    messages : each sealed on its own.
    size : bytes of all seals.
    """

    mode: str
    messages: int
    size: int

    @property
    def phone_s(self) -> float:
        """Seconds that key agreements take a slow phone's core."""
        return self.messages * PHONE_SEAL_S

    def __str__(self) -> str:
        return f"{self.messages:,} messages, {self.size / 1000:,.0f} kB"


def sent_by_user(cohort: CohortMechanism) -> Sent | None:
    """Count messages and bytes; None where sums are not shuffled."""
    if cohort.radix is not None:
        return _pure(cohort.radix)
    return (
        _count_mixed(cohort, cohort.epsilon)
        if isinstance(cohort, MixedCohort)
        else None
    )


def messages_sentence(cohort: CohortMechanism, sent: Sent) -> str:
    """Say what is sent, and about what the other mode would send."""
    if cohort.radix is not None:
        other = _count_mixed(cohort, cohort.guarantee().epsilon or Fraction(1))
        costs = "for a δ of 2⁻⁴⁰ each time"
    else:
        modulus = backend_modulus(SHUFFLE, cohort.modulus)
        size, level = cohort.cohort_size, cohort.guarantee().epsilon or Fraction(1)
        other = _pure(RadixPlan.of_cohort(size, modulus, level, _TYPICAL_WRAP))
        costs = "without a δ"
    return (
        f"Through the shuffler a user of the largest cohort sends {sent}. Each message "
        f"is sealed on its own, about {sent.phone_s:.2g} s of a slow phone's core. "
        f"The mode {other.mode} would take about {other}, {other.phone_s:.2g} s, "
        f"{costs}."
    )


def _pure(plan: RadixPlan) -> Sent:
    return Sent(PURE, plan.messages, plan.messages * sealed_bytes(PLAIN, 1))


def _count_mixed(cohort: CohortMechanism, epsilon: Fraction) -> Sent:
    modulus = backend_modulus(SHUFFLE, cohort.modulus)
    honest = max(2, cohort.honest_floor)
    shares = shares_for(honest, modulus, distance_bits(epsilon))
    return Sent(MIXED, shares, shares * sealed_bytes(HYBRID, share_bytes(modulus)))
