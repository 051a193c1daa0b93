"""What the users of a run have spent so far, as the journal keeps it.

Everyone invited counts, also in void cohorts: an answer may have left the node before
the cohort was given up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

from protocol.cohort import cohort_mechanism
from protocol.quantities import round_up
from protocol.wire.cohort_pb2 import CohortSpec

PRIVACY_DELTA = 1e-6


def spent(specs: Iterable[CohortSpec], participations: int) -> Mapping[str, Any]:
    """Give the guarantee of a user who took part `participations` times.

    The promise of the run is that of its weakest cohort: with unique users cohorts
    compose in parallel, with returning ones sequentially.

    Returns
    -------
    Mapping[str, Any]
        ``kind``, ``epsilon`` of one cohort, ``participations`` of the busiest user,
        ``total-epsilon`` (pure: exact sum; else None), ``approximate-epsilon`` at
        ``privacy-delta``, ``trust``, and the plain ``sentence`` of the weakest cohort.
    """
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
