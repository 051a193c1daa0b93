"""Algorithm 3, the analyzer: from the sum modulo m back to the sum of rewards.

The result is an integer in units of 1/g; who wants a mean divides by g and the number
of survivors.
"""

from __future__ import annotations

from wallflower.protocol.cohort import cohort_mechanism
from wallflower.protocol.errors import InputError
from wallflower.protocol.noise.bits import BitSource, OsBits
from wallflower.protocol.privacy.mechanism import CohortMechanism
from wallflower.protocol.secure_sum.session import SecureSum
from wallflower.protocol.wire.cohort_pb2 import CohortSpec
from wallflower.strategy.bandit.policy import CohortSum
from wallflower.strategy.store.entries import SumRecord


def decode(
    total: int, *, cohort_size: int, precision: int, noise_bound: int, modulus: int
) -> int:
    """Undo the wrap-around: y > ng + τ ⇒ y − m.

    Right whenever the noise in the sum is at most τ in absolute value: the true value
    then lies in −τ … ng + τ, fewer than m integers.

    Parameters
    ----------
    total : y, the sum of the users' integers modulo m.
    cohort_size : n, or any bound on the number of users in the sum.
    precision : g.
    noise_bound : τ.
    modulus : m ≥ ng + 2τ + 1.
    """
    least = cohort_size * precision + 2 * noise_bound + 1
    if modulus < least:
        raise InputError("modulus", modulus, f"at least ng + 2τ + 1 = {least}")
    if not 0 <= total < modulus:
        raise InputError("total", "outside its range", f"0 … {modulus - 1}")
    if total > cohort_size * precision + noise_bound:
        return total - modulus
    return total


def analyze(
    cohort: CohortMechanism,
    total: int,
    modulus: int | None = None,
    bits: BitSource | None = None,
) -> int:
    """Return a cohort's noisy sum of rewards in units of 1/g.

    In the central model the users add no noise and the trusted server does it here,
    from `bits` (the operating system's unless a simulation passes others).
    """
    value = decode(
        total,
        cohort_size=cohort.cohort_size,
        precision=cohort.precision,
        noise_bound=cohort.noise_bound,
        modulus=cohort.modulus if modulus is None else modulus,
    )
    noise = cohort.server_noise()
    if noise is None:
        return value
    return value + int(noise.sample(1, bits or OsBits())[0])


def released_sum(spec: CohortSpec, end: SecureSum) -> tuple[CohortSum, SumRecord]:
    """Undo the wrap-around (Algorithm 3) and write the sum for policy and journal."""
    mechanism = cohort_mechanism(spec)
    total = analyze(mechanism, end.total, end.modulus)
    outcome = CohortSum(
        batch=spec.batch,
        arm=spec.arm,
        cohort_size=spec.cohort_size,
        honest_floor=spec.honest_floor,
        survivors=end.users,
        precision=mechanism.precision,
        total=total,
    )
    # A sum that the server itself noises is never written down without the noise.
    released = None if mechanism.server_noise() is not None else end.total
    return outcome, SumRecord(
        cohort_id=spec.cohort_id,
        released=released,
        modulus=end.modulus,
        total=total,
        precision=mechanism.precision,
        survivors=end.users,
        nodes=end.survivors,
    )
