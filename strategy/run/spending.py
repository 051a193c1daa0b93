"""What the users of a run have spent so far, as the journal keeps it.

Everyone invited counts, also in void cohorts and in those a crash cut short: an answer
may have left the node before the cohort was given up. A run whose noise comes from a
seed (test mode) protects nobody, whatever its mechanism.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
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
from wallflower.protocol.secure_sum.backends import SEALED, SHUFFLE
from wallflower.protocol.secure_sum.threat import Threat, helpers_are_drawn
from wallflower.protocol.wire.cohort_pb2 import CohortSpec
from wallflower.strategy.store.chain import DEALT, INVITED, RETURNED, ROUND
from wallflower.strategy.store.journal import Journal

# A cohort that was asked: its public description, and on how many nodes.
Asked = tuple[CohortSpec, int]
# Entries of the chain after the last round that change what was spent.
_ASKED_SINCE = (
    "SELECT count(*) FROM entry WHERE kind IN (?, ?, ?) "
    "AND number > (SELECT max(number) FROM entry WHERE kind = ?)"
)
_KINDS = (INVITED, RETURNED, DEALT, ROUND)


class Spending:
    """What everybody asked so far may have spent; a cohort is looked at once.

    The promise of the run is that of its weakest cohort: with unique users cohorts
    compose in parallel, with returning ones sequentially. So cohorts that promise the
    same count once, however many they are.
    """

    def __init__(self, cohorts: Iterable[Asked] = ()) -> None:
        self._new: list[Asked] = list(cohorts)
        self._mechanisms: dict[CohortMechanism, None] = {}
        self._cut: dict[CohortMechanism, None] = {}  # those with proved inputs
        self._groups: set[Group] = set()
        self._seen: set[tuple[bytes, int]] = set()
        self._first: CohortSpec | None = None

    def __bool__(self) -> bool:
        return bool(self._new) or self._first is not None

    def add(self, spec: CohortSpec, nodes: int) -> None:
        """Take a cohort that is about to be asked on so many nodes."""
        self._new.append((spec, nodes))

    def spent(
        self, participations: int, *, test_mode: bool, keys: Iterable[int] = ()
    ) -> Mapping[str, Any]:
        """Give the guarantee of a user who took part `participations` times.

        Returns
        -------
        Mapping[str, Any]
            ``kind``, ``epsilon`` of one cohort, ``participations`` of the busiest
            user, ``total-epsilon`` (pure: exact sum; else None),
            ``approximate-epsilon`` at ``privacy-delta``, ``trust``, and the ``groups``
            on whose honesty it rests; of sealed sums also the ``keys``, each dealt
            among so many nodes, and what proofs of range add to δ
            (``truncation-delta``); of mixed ones what mixing adds to it
            (``mixing-delta``). In test mode there is no ε at all.
        """
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
        if not self:
            return {"participations": 0}
        self._look()
        promises = [mechanism.guarantee() for mechanism in self._mechanisms]
        # One experiment has one mechanism: kind and trust are everywhere the same.
        kind, trust = promises[0].kind, promises[0].trust
        stated = [p.epsilon for p in promises if p.epsilon is not None]
        largest = max(stated, default=None)
        times = max(1, participations)
        bound = smallest_bound(self._mechanisms, times, SENTENCE_DELTA)
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
            "groups": [dataclasses.asdict(group) for group in sorted(self._groups)],
            **self._sealed(times, bound.epsilon, keys),
            **_mixed(self._mechanisms, times),
        }

    def _look(self) -> None:
        """Calibrate the cohorts that were added since it was last asked."""
        new, self._new = self._new, []
        for spec, nodes in new:
            kind = _kind(spec), nodes
            if kind in self._seen:
                continue
            self._seen.add(kind)
            mechanism = cohort_mechanism(spec)
            self._mechanisms[mechanism] = None
            if spec.proved_inputs:
                self._cut[mechanism] = None
            self._groups.add(group_of(spec, nodes))
            self._first = self._first or spec

    def _sealed(
        self, times: int, epsilon: float, keys: Iterable[int]
    ) -> dict[str, Any]:
        """Say what is true of sealed sums alone; one experiment has one back-end."""
        if self._first is None or self._first.backend != SEALED:
            return {}
        threat = Threat.from_wire(self._first.threat)
        holders = {
            KeyHolders(
                nodes,
                threat.corrupt_nodes(nodes),
                helpers_are_drawn(SEALED, threat, nodes),
            )
            for nodes in keys
        }
        return {
            "corrupt": str(threat.corrupt),
            "keys": [dataclasses.asdict(one) for one in sorted(holders)],
            "truncation-delta": str(added_delta(self._cut, times, epsilon)),
        }


def _kind(spec: CohortSpec) -> bytes:
    """Return what a cohort's promise depends on.

    Modulus and level of its wrap-around, which differ in every round, matter only where
    a shuffler shows more than the sum.
    """
    kind = CohortSpec()
    kind.CopyFrom(spec)
    for field in ("cohort_id", "batch", "arm", "arm_name", "quorum"):
        kind.ClearField(field)
    if spec.backend != SHUFFLE:
        kind.ClearField("wrap_probability")
        kind.ClearField("modulus")
    return kind.SerializeToString(deterministic=True)


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
    """Read what `Spending.spent` gave as a promise that can be put in words."""
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
    """Give the guarantee that everybody ever invited may have used up by now.

    That of the last round, unless somebody was asked or a key was made since.
    """
    last = journal.last_round()
    if last is not None and journal.rows(_ASKED_SINCE, *_KINDS)[0][0] == 0:
        return last.spent
    return recount_spent(journal)


def recount_spent(journal: Journal) -> Mapping[str, Any]:
    """Give the same from the invitations alone, whatever the rounds say."""
    nodes = journal.count_invited()
    asked = Spending(
        (CohortSpec.FromString(cohort.spec), len(nodes.get(cohort.cohort_id, ())))
        for cohort in journal.cohorts()
    )
    return asked.spent(
        max(journal.count_participations(), default=0),
        test_mode=journal.config.test_mode,
        keys=[one.nodes for one in journal.dealings() if not one.reason],
    )
