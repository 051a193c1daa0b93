"""What the users of a run have spent so far, as the journal keeps it.

Everyone invited counts, also in void cohorts and in those a crash cut short: an answer
may have left the node before the cohort was given up. A run whose noise comes from a
seed (test mode) protects nobody, whatever its mechanism.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from wallflower.protocol.accounting.exact import smallest_bound
from wallflower.protocol.accounting.truncation import added_delta
from wallflower.protocol.cohort import cohort_mechanism
from wallflower.protocol.numbers import round_up
from wallflower.protocol.privacy.mechanism import CohortMechanism
from wallflower.protocol.privacy.sentences import (
    SENTENCE_DELTA,
    Group,
    KeyHolders,
    Promise,
)
from wallflower.protocol.rewards.seeded import TEST_MODE
from wallflower.protocol.secure_sum.backends import SEALED
from wallflower.protocol.secure_sum.threat import Threat, helpers_are_drawn
from wallflower.protocol.wire.cohort_pb2 import CohortSpec
from wallflower.strategy.record.journal import Journal

# A cohort that was asked: its public description, and on how many nodes.
Asked = tuple[CohortSpec, int]


def spent(
    cohorts: Iterable[Asked],
    participations: int,
    *,
    test_mode: bool,
    keys: Iterable[int] = (),
) -> Mapping[str, Any]:
    """Give the guarantee of a user who took part `participations` times.

    The promise of the run is that of its weakest cohort: with unique users cohorts
    compose in parallel, with returning ones sequentially.

    Returns
    -------
    Mapping[str, Any]
        ``kind``, ``epsilon`` of one cohort, ``participations`` of the busiest user,
        ``total-epsilon`` (pure: exact sum; else None), ``approximate-epsilon`` at
        ``privacy-delta``, ``trust``, and the ``groups`` on whose honesty it rests; of
        sealed sums also the ``keys``, each dealt among so many nodes, and what proofs
        of range add to δ (``truncation-delta``); of mixed ones what mixing adds to it
        (``mixing-delta``). In test mode there is no ε at all.
    """
    asked = list(cohorts)
    if test_mode:
        return {
            "kind": "none",
            "epsilon": None,
            "participations": participations,
            "total-epsilon": None,
            "approximate-epsilon": None,
            "privacy-delta": SENTENCE_DELTA,
            "trust": "test mode",
            "groups": [],
            "sentence": TEST_MODE,
        }
    if not asked:
        return {"participations": 0}
    mechanisms = {cohort_mechanism(spec) for spec, _ in asked}
    promises = [mechanism.guarantee() for mechanism in mechanisms]
    # One experiment has one mechanism: kind and trust are everywhere the same.
    kind, trust = promises[0].kind, promises[0].trust
    largest = max((p.epsilon for p in promises if p.epsilon is not None), default=None)
    times = max(1, participations)
    bound = smallest_bound(mechanisms, times, SENTENCE_DELTA)
    return {
        "kind": kind,
        "epsilon": None if largest is None else str(largest),
        "participations": participations,
        "total-epsilon": (
            str(largest * times) if kind == "pure" and largest is not None else None
        ),
        "approximate-epsilon": None if largest is None else round_up(bound.epsilon),
        "privacy-delta": SENTENCE_DELTA,
        "trust": trust,
        "groups": [
            dataclasses.asdict(group)
            for group in sorted({group_of(spec, nodes) for spec, nodes in asked})
        ],
        **_sealed(asked, times, bound.epsilon, keys),
        **_mixed(mechanisms, times),
    }


def _sealed(
    asked: Sequence[Asked], times: int, epsilon: float, keys: Iterable[int]
) -> dict[str, Any]:
    """Say what is true of sealed sums alone; one experiment has one back-end."""
    spec = asked[0][0]
    if spec.backend != SEALED:
        return {}
    threat = Threat.from_wire(spec.threat)
    holders = {
        KeyHolders(
            nodes,
            threat.corrupt_nodes(nodes),
            helpers_are_drawn(SEALED, threat, nodes),
        )
        for nodes in keys
    }
    cut = {cohort_mechanism(each) for each, _ in asked if each.proved_inputs}
    return {
        "corrupt": str(threat.corrupt),
        "keys": [dataclasses.asdict(one) for one in sorted(holders)],
        "truncation-delta": str(added_delta(cut, times, epsilon)),
    }


def _mixed(mechanisms: Iterable[CohortMechanism], times: int) -> dict[str, Any]:
    delta = max(mechanism.view_delta for mechanism in mechanisms)
    return {"mixing-delta": str(delta * times)} if delta else {}


def own_delta(stated: Mapping[str, Any]) -> Fraction:
    """Give the δ that comes on top of any at which an ε was converted."""
    return sum(
        (Fraction(stated.get(key, 0)) for key in ("truncation-delta", "mixing-delta")),
        Fraction(0),
    )


def group_of(spec: CohortSpec, nodes: int) -> Group:
    """Say who must be honest in a cohort that was spread over so many nodes."""
    if spec.backend == SEALED:  # a group's nodes hold no shares of its sum
        return Group(spec.cohort_size, spec.honest_floor)
    threat = Threat.from_wire(spec.threat)
    return Group(
        people=spec.cohort_size,
        honest=spec.honest_floor,
        nodes=nodes,
        colluding=threat.corrupt_nodes(nodes),
        drawn=helpers_are_drawn(spec.backend, threat, nodes),
    )


def promise_of(stated: Mapping[str, Any]) -> Promise:
    """Read what `spent` wrote as a promise that can be put in words."""
    pure = stated["total-epsilon"]
    approximate = stated["approximate-epsilon"]
    keys = stated.get("keys")
    return Promise(
        kind=stated["kind"],
        trust=stated["trust"],
        epsilon=Fraction(pure) if pure else float(approximate or "inf"),
        privacy_delta=(0.0 if pure else stated["privacy-delta"])
        + float(own_delta(stated)),
        times=max(1, stated["participations"]),
        groups=tuple(Group(**group) for group in stated["groups"]),
        corrupt=Fraction(stated.get("corrupt", 0)),
        keys=None if keys is None else tuple(KeyHolders(**one) for one in keys),
    )


def spent_by(journal: Journal) -> Mapping[str, Any]:
    """Give the guarantee that everybody ever invited may have used up by now."""
    often: Counter[tuple[str, str]] = Counter()
    nodes = Counter(cohort_id for cohort_id, _, _ in journal.invitations())
    for _, node_id, users in journal.used():
        often.update((node_id, user) for user in users)
    return spent(
        [
            (CohortSpec.FromString(cohort.spec), nodes[cohort.cohort_id])
            for cohort in journal.cohorts()
        ],
        max(often.values(), default=0),
        test_mode=journal.config.test_mode,
        keys=[one.nodes for one in journal.dealings() if not one.reason],
    )
