"""From a secure sum to what the policy decides on and the journal keeps."""

from __future__ import annotations

from wallflower.protocol.cohort import cohort_mechanism
from wallflower.protocol.secure_sum.session import SecureSum
from wallflower.protocol.wire.cohort_pb2 import CohortSpec
from wallflower.strategy.bandit.policy import CohortOutcome
from wallflower.strategy.record.entries import SumRecord
from wallflower.strategy.run.analyzer import analyze


def released_sum(spec: CohortSpec, end: SecureSum) -> tuple[CohortOutcome, SumRecord]:
    """Undo the wrap-around (Algorithm 3) and write the sum for policy and journal."""
    mechanism = cohort_mechanism(spec)
    total = analyze(mechanism, end.total, end.modulus)
    outcome = CohortOutcome(
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
        spec.cohort_id,
        released,
        end.modulus,
        total,
        mechanism.precision,
        end.users,
        end.survivors,
    )
