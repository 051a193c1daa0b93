"""What the users of a run have spent so far, as the journal keeps it.

Everyone invited counts, also in void cohorts and in those a crash cut short: an answer
may have left the node before the cohort was given up. A run whose noise comes from a
seed (test mode) protects nobody, whatever its mechanism.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from fractions import Fraction

from wallflower.protocol.accounting.exact import smallest_bound
from wallflower.protocol.accounting.truncation import added_delta
from wallflower.protocol.cohort import cohort_mechanism
from wallflower.protocol.numbers import round_up
from wallflower.protocol.privacy.mechanism import CohortMechanism
from wallflower.protocol.privacy.sentences import (
    SENTENCE_DELTA,
    CohortCondition,
    KeyHolders,
    Promise,
)
from wallflower.protocol.rewards.seeded import TEST_MODE
from wallflower.protocol.secure_sum.backends import SEALED, SHUFFLE
from wallflower.protocol.secure_sum.threat import Threat, helpers_are_drawn
from wallflower.protocol.wire.cohort_pb2 import CohortSpec
from wallflower.strategy.store.entries import PrivacySpend
from wallflower.strategy.store.journal import Journal

# A cohort that was asked: its public description, and on how many nodes.
Asked = tuple[CohortSpec, int]


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
        self._conditions: set[CohortCondition] = set()
        self._seen: set[tuple[bytes, int]] = set()
        self._first: CohortSpec | None = None

    def __bool__(self) -> bool:
        return bool(self._new) or self._first is not None

    def add(self, spec: CohortSpec, nodes: int) -> None:
        """Take a cohort that is about to be asked on so many nodes."""
        self._new.append((spec, nodes))

    def compute(
        self, participations: int, *, test_mode: bool, keys: Iterable[int] = ()
    ) -> PrivacySpend:
        """Return what a user spent who took part `participations` times.

        `keys` has the nodes among whom each key of sealed sums was dealt. In test mode
        there is no ε at all.
        """
        if test_mode:
            return PrivacySpend(
                participations=participations, trust="test mode", sentence=TEST_MODE
            )
        if not self:
            return PrivacySpend()
        self._calibrate_new()
        promises = [mechanism.guarantee() for mechanism in self._mechanisms]
        # One experiment has one mechanism: kind and trust are everywhere the same.
        kind, trust = promises[0].kind, promises[0].trust
        stated = [p.epsilon for p in promises if p.epsilon is not None]
        largest = max(stated, default=None)
        times = max(1, participations)
        bound = smallest_bound(self._mechanisms, times, SENTENCE_DELTA)
        mixing_delta = max(mechanism.view_delta for mechanism in self._mechanisms)
        spend = PrivacySpend(
            kind=kind,
            participations=participations,
            epsilon=largest,
            total_epsilon=(
                largest * times if kind == "pure" and largest is not None else None
            ),
            approximate_epsilon=None if largest is None else round_up(bound.epsilon),
            trust=trust,
            conditions=tuple(sorted(self._conditions)),
            mixing_delta=mixing_delta * times,
        )
        return self._add_keys(spend, times, bound.epsilon, keys)

    def _calibrate_new(self) -> None:
        """Calibrate the cohorts that were added since the last time."""
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
            self._conditions.add(describe_condition(spec, nodes))
            self._first = self._first or spec

    def _add_keys(
        self, spend: PrivacySpend, times: int, epsilon: float, keys: Iterable[int]
    ) -> PrivacySpend:
        """Add what is true of sealed sums alone; one experiment has one back-end."""
        if self._first is None or self._first.backend != SEALED:
            return spend
        threat = Threat.from_wire(self._first.threat)
        holders = {
            KeyHolders(
                nodes,
                threat.corrupt_nodes(nodes),
                helpers_are_drawn(SEALED, threat, nodes),
            )
            for nodes in keys
        }
        return dataclasses.replace(
            spend,
            corrupt=threat.corrupt,
            keys=tuple(sorted(holders)),
            truncation_delta=added_delta(self._cut, times, epsilon),
        )


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


def describe_condition(spec: CohortSpec, nodes: int) -> CohortCondition:
    """Return who must be honest in a cohort that was spread over so many nodes."""
    if spec.backend == SEALED:  # a cohort's nodes hold no shares of its sum
        return CohortCondition(spec.cohort_size, spec.honest_floor)
    threat = Threat.from_wire(spec.threat)
    return CohortCondition(
        people=spec.cohort_size,
        honest=spec.honest_floor,
        nodes=nodes,
        colluding=threat.corrupt_nodes(nodes),
        drawn=helpers_are_drawn(spec.backend, threat, nodes),
    )


def build_promise(spend: PrivacySpend) -> Promise:
    """Return what was spent as a promise that can be put in words."""
    pure = spend.total_epsilon
    return Promise(
        kind=spend.kind,
        trust=spend.trust,
        epsilon=pure if pure else float(spend.approximate_epsilon or "inf"),
        privacy_delta=(0.0 if pure else spend.privacy_delta) + float(spend.own_delta),
        times=max(1, spend.participations),
        conditions=spend.conditions,
        corrupt=spend.corrupt or Fraction(0),
        keys=spend.keys,
    )


def read_spend(journal: Journal) -> PrivacySpend:
    """Return what everybody ever invited may have spent by now.

    That of the last round, unless somebody was asked or a key was made since.
    """
    last = journal.last_round()
    if last is not None and not journal.is_asked_since_last_round():
        return last.spent
    return recount_spend(journal)


def recount_spend(journal: Journal) -> PrivacySpend:
    """Return the same from the invitations alone, whatever the rounds say."""
    nodes = journal.count_invited()
    asked = Spending(
        (CohortSpec.FromString(cohort.spec), len(nodes.get(cohort.cohort_id, ())))
        for cohort in journal.cohorts()
    )
    return asked.compute(
        max(journal.count_participations(), default=0),
        test_mode=journal.config.test_mode,
        keys=[one.nodes for one in journal.dealings() if not one.reason],
    )
