"""What the users of a run have spent so far, as the journal keeps it.

Everyone invited counts, also in void cohorts and in those a crash cut short: an answer
may have left the node before the cohort was given up. A run whose noise comes from a
seed (test mode) protects nobody, whatever its mechanism.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

from protocol.cohort import cohort_mechanism
from protocol.quantities import round_up
from protocol.repeatable import TEST_MODE
from protocol.wire.cohort_pb2 import CohortSpec
from strategy.journal import Journal

PRIVACY_DELTA = 1e-6


def spent(
    specs: Iterable[CohortSpec], participations: int, *, test_mode: bool
) -> Mapping[str, Any]:
    """Give the guarantee of a user who took part `participations` times.

    The promise of the run is that of its weakest cohort: with unique users cohorts
    compose in parallel, with returning ones sequentially.

    Returns
    -------
    Mapping[str, Any]
        ``kind``, ``epsilon`` of one cohort, ``participations`` of the busiest user,
        ``total-epsilon`` (pure: exact sum; else None), ``approximate-epsilon`` at
        ``privacy-delta``, ``trust``, and the plain ``sentence`` of the weakest cohort.
        In test mode there is no ε at all.
    """
    if test_mode:
        return {
            "kind": "none",
            "epsilon": None,
            "participations": participations,
            "total-epsilon": None,
            "approximate-epsilon": None,
            "privacy-delta": PRIVACY_DELTA,
            "trust": "test mode",
            "sentence": TEST_MODE,
        }
    weakest = min(
        (cohort_mechanism(spec) for spec in specs),
        # The coarser the rounding, the weaker a Rényi guarantee; floors break ties.
        key=lambda cohort: (cohort.precision, cohort.honest_floor),
        default=None,
    )
    if weakest is None:
        return {"participations": 0}
    guarantee = weakest.guarantee()
    total: Fraction | None = None
    if guarantee.kind == "pure" and guarantee.epsilon is not None:
        total = guarantee.epsilon * participations
    approximate = guarantee.approximate(PRIVACY_DELTA, max(1, participations))
    return {
        "kind": guarantee.kind,
        "epsilon": None if guarantee.epsilon is None else str(guarantee.epsilon),
        "participations": participations,
        "total-epsilon": None if total is None else str(total),
        "approximate-epsilon": round_up(approximate),
        "privacy-delta": PRIVACY_DELTA,
        "trust": guarantee.trust,
        "sentence": guarantee.sentence,
    }


def spent_by(journal: Journal) -> Mapping[str, Any]:
    """Give the guarantee that everybody ever invited may have used up by now."""
    often: Counter[tuple[str, str]] = Counter()
    for _, node_id, users in journal.invitations():
        often.update((node_id, user) for user in users)
    return spent(
        [CohortSpec.FromString(cohort.spec) for cohort in journal.cohorts()],
        max(often.values(), default=0),
        test_mode=journal.config.test_mode,
    )
