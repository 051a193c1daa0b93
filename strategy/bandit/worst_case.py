"""Does a verdict hold for everybody asked, whatever the missing people's outcomes were?

A cohort asks n people and m of them are in no sum. Their mean over all n lies between
S/n (all missing outcomes are 0) and (S + m)/n (all are 1). The test of a pair
(`pair_test`) is a sum of exp(a·S_i + b·S_j − Ψ) with a ≥ 0 ≥ b, and Ψ depends on how
many people count and on the noise, not on their outcomes. So its evidence that i beats
j is smallest where all missing people of i have outcome 0 and those of j outcome 1. If
it still exceeds its threshold with the sizes of all asked, it exceeds it for every
outcome of the missing, the true one included. For the sum over all asked, Ville's
inequality holds as before: people are assigned before anybody can be missing. Hence

    P(the verdict is said to hold for everybody, and an arm out was the best) ≤ p.

Noise is paid for by those in the sum: given who they are, it does not depend on any
outcome. Each arm is tested in the round in which it fell; later rounds have no sum of
it. Every arm with a sum in that round may serve as the leader, because p is shared
over all K − 1 of them; the one whose lowest possible mean is highest does.

Void cohorts are looked at twice. Whoever replaced their people is in the sums; that is
enough if cohorts do not become void because of outcomes. Without this assumption their
people are missing like others: each attempt is a factor of mean at most one, and
whether there is another attempt is known before it begins.

The `pair` and `paper` radii choose what to pool by who is in the sums, which may depend
on outcomes. With them only a run that misses nobody is said to hold for everybody.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from wallflower.strategy.bandit.cells import Doubles
from wallflower.strategy.bandit.differences import EVERYTHING, PairRegion, find_region
from wallflower.strategy.bandit.margin import pairs_of
from wallflower.strategy.bandit.policy import Arm, Ending
from wallflower.strategy.bandit.recorded import ArmRecord, State
from wallflower.strategy.bandit.schedule import CohortFacts, History, heard_from
from wallflower.strategy.bandit.sequential_test import evidence_for
from wallflower.strategy.bandit.spec import PolicySpec

Side = tuple[History, Doubles]  # what was heard of an arm, and its sums
# People of void cohorts, by arm and batch.
VoidPeople = Mapping[tuple[Arm, int], int]


@dataclass(frozen=True, slots=True)
class Interval:
    """Ends of an arm's mean over everybody asked, for any outcomes of the missing."""

    lower: float
    upper: float


@dataclass(frozen=True, slots=True)
class Pair:
    """Two arms' estimates, and which pairs of their means are left.

    `among_answered` holds for those who answered, `whatever` for everybody asked,
    whatever the outcomes of the missing were.
    """

    estimate: float | None
    other_estimate: float | None
    among_answered: PairRegion
    whatever: PairRegion


NOTHING_HEARD = Pair(None, None, EVERYTHING, EVERYTHING)


class WorstCase:
    """An elimination's decisions, looked at with the outcomes that speak against them.

    Parameters
    ----------
    state : State
        Of the policy, as the record has it.
    void : VoidPeople, optional
        People of void cohorts that count as missing; none: they were replaced.
    earlier : Mapping[int, State], optional
        The states after the earlier batches in which an arm fell, by batch.
    """

    def __init__(
        self,
        state: State,
        void: VoidPeople | None = None,
        earlier: Mapping[int, State] | None = None,
    ) -> None:
        self._spec = PolicySpec.from_json(state["spec"]).resolved()
        self._evidence = evidence_for(self._spec)
        self._records = _records(state)
        self._earlier = {batch: _records(one) for batch, one in (earlier or {}).items()}
        self._finished: str | None = state["finished"]
        self._now: int = state["batch"] - 1
        self._earlier[self._now] = self._records
        self._void = void or {}

    @cached_property
    def missing(self) -> int:
        """People asked who count and are in no sum."""
        in_void = sum(self._void.values())
        return in_void + sum(
            count * (facts.size - facts.survivors)
            for record in self._records
            for group in record.heard
            for facts, count in group
        )

    def doubtful(self) -> tuple[Arm, ...]:
        """Return the arms out that the missing people might have kept in the race."""
        out = [
            arm
            for arm, record in enumerate(self._records)
            if not (record.active or record.retired)
        ]
        if not self.missing:
            return ()
        if self._spec.radius != "tight":
            return tuple(out)
        return tuple(arm for arm in out if not self._still_falls(arm))

    def interval(self, arm: Arm) -> Interval:
        """Return the interval of an arm's mean over everybody asked about it."""
        record = self._records[arm]
        if not record.last:
            return Interval(0.0, 1.0)
        low, high = (
            self._evidence.interval(
                record.last, *self._side(record, arm, record.last, outcome=outcome)
            )
            for outcome in (0, 1)
        )
        return Interval(float(low[1][0]), float(high[2][0]))

    def ends_otherwise(self) -> bool:
        """Return whether the missing people might have kept the margin from ending it.

        The answer is no where something else ended it.
        """
        margin = self._spec.margin
        if margin is None or self._finished not in (Ending.EQUAL, Ending.FUTILE):
            return False
        racing = [arm for arm, record in enumerate(self._records) if record.active]
        pairs = pairs_of(Ending(self._finished), racing, self._spec.control)
        return not all(
            self._evidence.compare(
                self._now,
                *self._sides(self._records, arm, rival, self._now),
                shift=-float(margin),
            ).falls[0]
            for arm, rival in pairs
        )

    def compare(self, arm: Arm, other: Arm) -> Pair:
        """Return which pairs of two arms' means are left, whoever is missing.

        An arm that is out is compared with what the other had shown when it fell: what
        came later counts nothing, which is known before it comes.
        """
        batch = min(self._last_batch(arm), self._last_batch(other))
        if not batch:
            return NOTHING_HEARD
        known = self._earlier[batch]
        one, two = known[arm], known[other]
        answered = [
            (record.heard, record.row(self._evidence.group_of(batch) + 1))
            for record in (one.without(two.lost), two.without(one.lost))
        ]
        means = [self._mean(*side, batch) for side in answered]
        low = self._sides(known, arm, other, batch)
        high = self._sides(known, other, arm, batch)[::-1]
        return Pair(
            means[0],
            means[1],
            self._region(batch, answered, answered),
            self._region(batch, low, high),
        )

    def _region(
        self, batch: int, low: Sequence[Side], high: Sequence[Side]
    ) -> PairRegion:
        rows = (*low, *high)
        return _region(
            self._spec,
            batch,
            (low[0][0], low[1][0]),
            tuple(tuple(row[0].tolist()) for _, row in rows),
        )

    def _last_batch(self, arm: Arm) -> int:
        """Return the batch up to which an arm got people."""
        record = self._records[arm]
        if record.active or self._spec.keeps(arm, retired=record.retired):
            return self._now
        return 0 if record.eliminated_in is None else record.eliminated_in

    def _still_falls(self, arm: Arm) -> bool:
        """Repeat the test in which an arm fell, against the likeliest leader."""
        batch = self._records[arm].eliminated_in
        assert batch is not None
        records = self._earlier[batch]
        rivals = [
            other
            for other, record in enumerate(records)
            if other != arm and record.last == batch
        ]
        lowest = {
            other: self._side(records[other], other, batch, outcome=0)
            for other in rivals
        }
        leader = max(rivals, key=lambda other: self._mean(*lowest[other], batch))
        sides = self._sides(records, leader, arm, batch)
        return bool(self._evidence.compare(batch, *sides).falls[0])

    def _mean(self, heard: History, sums: Doubles, batch: int) -> float:
        users = self._evidence.delivered(heard, batch).users
        return float(self._evidence.estimates(users, sums)[0])

    def _sides(
        self, records: Sequence[ArmRecord], arm: Arm, rival: Arm, batch: int
    ) -> tuple[Side, Side]:
        """Return two arms with the outcomes of the missing that speak against `arm`.

        They are compared over the rounds in which both have a sum. Where people of void
        cohorts count as missing, every round has one.
        """
        one, other = (
            records[number].without(
                [
                    place
                    for place in records[against].lost
                    if (against, place) not in self._void
                ]
            )
            for number, against in ((arm, rival), (rival, arm))
        )
        return (
            self._side(one, arm, batch, outcome=0),
            self._side(other, rival, batch, outcome=1),
        )

    def _side(
        self, record: ArmRecord, arm: Arm, batch: int, *, outcome: int
    ) -> tuple[History, Doubles]:
        """Return an arm's cohorts up to a batch; all missing have one outcome."""
        groups: dict[int, Counter[CohortFacts]] = {}
        for number, group in enumerate(record.heard):
            for facts, count in group:
                absent = facts.size - facts.survivors
                kind = dataclasses.replace(facts, absent=absent)
                groups.setdefault(number, Counter())[kind] += count
        for (other, place), people in self._void.items():
            if other == arm and place <= batch:
                number = self._evidence.group_of(place)
                kind = CohortFacts(people, people, 0, people)
                groups.setdefault(number, Counter())[kind] += 1
        row = record.row(self._evidence.group_of(batch) + 1)
        for number, kinds in groups.items():
            absent = sum(count * facts.absent for facts, count in kinds.items())
            row[0, number] += outcome * absent
        return heard_from(groups), row


@lru_cache(maxsize=1024)
def _region(
    spec: PolicySpec,
    batch: int,
    heard: tuple[History, History],
    rows: tuple[tuple[float, ...], ...],
) -> PairRegion:
    """Compute it once: a page that is shown again asks for the same."""
    one, other, one_high, other_high = (np.array([row]) for row in rows)
    return find_region(
        evidence_for(spec), batch, heard, (one, other), (one_high, other_high)
    )


def _records(state: State) -> list[ArmRecord]:
    arms = state["arms"]
    return [ArmRecord.from_json(arms[str(arm)]) for arm in range(len(arms))]
