"""What every policy keeps: a record of each arm, the batch, and why it is over."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from wallflower.protocol.errors import InputError
from wallflower.strategy.bandit.confidence import confidence_for
from wallflower.strategy.bandit.policy import (
    Arm,
    ArmView,
    CohortSum,
    EliminationReason,
)
from wallflower.strategy.bandit.schedule import (
    CohortFacts,
    History,
    Schedule,
    heard_from,
)
from wallflower.strategy.bandit.sequential_test import evidence_for
from wallflower.strategy.bandit.spec import PolicySpec

State: TypeAlias = Mapping[str, Any]  # JSON types
Interval: TypeAlias = tuple[float, float, float]  # estimate, lower and upper end
_TOGETHER = 256  # arms whose intervals are computed at once
# Cohorts of one kind: how many, and the sum of their integers by their precision.
# A round in which an arm had no sum is a kind of its own; its number is 0 elsewhere.
Kind = tuple[int, int]
Kinds = dict[tuple[CohortFacts, int, int], Kind]


@dataclass(slots=True)
class ArmRecord:
    """The delivered cohorts of one arm, group by group; sums are exact.

    Attributes
    ----------
    groups : what came, by the group of the plan and the kind of cohort.
    users : asked, delivered or not.
    lost : rounds in which it was asked and had no sum, but another arm had.
    last : place in the plan of the newest cohort that came, 0 before the first.
    latest : what that cohort was.
    reason : why the sums put it out.
    retired : taken out by hand; `note` has the operator's words.
    """

    groups: dict[int, Kinds] = field(default_factory=dict)
    users: int = 0
    lost: list[int] = field(default_factory=list)
    last: int = 0
    latest: CohortFacts | None = None
    eliminated_in: int | None = None
    reason: EliminationReason | None = None
    retired: bool = False
    note: str = ""
    _heard: History | None = None

    @property
    def active(self) -> bool:
        """Still in the race."""
        return self.eliminated_in is None

    @property
    def heard(self) -> History:
        """What was heard of the arm, as tests and intervals take it."""
        if self._heard is None:
            counts: dict[int, dict[CohortFacts, int]] = {}
            for number, kinds in self.groups.items():
                counts[number] = defaultdict(int)
                for (facts, _, _), (count, _) in kinds.items():
                    counts[number][facts] += count
            self._heard = heard_from(counts)
        return self._heard

    def add(
        self, outcome: CohortSum, place: int, group: int, *, whole: bool = True
    ) -> None:
        """Take a delivered cohort, which the plan has at `place` in `group`.

        `whole`: every arm that was asked in its round has a sum.
        """
        facts = CohortFacts(
            outcome.cohort_size, outcome.honest_floor, outcome.survivors
        )
        kinds = self.groups.setdefault(group, {})
        kind = facts, outcome.precision, 0 if whole else place
        count, total = kinds.get(kind, (0, 0))
        kinds[kind] = count + 1, total + outcome.total
        self.last, self.latest, self._heard = place, facts, None

    def without(self, rounds: Collection[int]) -> ArmRecord:
        """Return what came in other rounds than these; itself if all did.

        Two arms are compared over the rounds in which both have a sum: rates that
        drift for all arms alike would make the arm look worse that missed a good one.
        """
        groups = {
            number: {
                kind: sums for kind, sums in kinds.items() if kind[2] not in rounds
            }
            for number, kinds in self.groups.items()
        }
        return self if groups == self.groups else ArmRecord(groups, last=self.last)

    def people(self) -> int:
        """Count the people in its sums."""
        return sum(n * facts.survivors for group in self.heard for facts, n in group)

    def estimate_newest(self) -> float:
        """Return the mean reward of the newest group."""
        newest = max(self.groups)
        users = sum(
            count * facts.survivors
            for (facts, _, _), (count, _) in self.groups[newest].items()
        )
        return float(self._sum(newest) / users)

    def total(self) -> Fraction:
        """Add up everything that came, in units of reward."""
        return sum(map(self._sum, self.groups), Fraction(0))

    def row(self, groups: int) -> NDArray[np.float64]:
        """Return the sums as one row of a table with a column per group of the plan."""
        row = np.zeros((1, groups))
        for number in self.groups:
            row[0, number] = float(self._sum(number))
        return row

    def _sum(self, group: int) -> Fraction:
        kinds = self.groups[group].items()
        parts = (Fraction(total, precision) for (_, precision, _), (_, total) in kinds)
        return sum(parts, Fraction(0))

    def as_json(self) -> dict[str, Any]:
        """Return JSON types.

        A kind is written as size, floor, survivors, precision and round, or 0.
        """
        return {
            "groups": {
                str(number): {
                    ":".join(map(str, (*_list_facts(facts), precision, alone))): [
                        count,
                        str(total),
                    ]
                    for (facts, precision, alone), (count, total) in kinds.items()
                }
                for number, kinds in self.groups.items()
            },
            "users": self.users,
            "lost": list(self.lost),
            "last": self.last,
            "latest": None if self.latest is None else list(_list_facts(self.latest)),
            "eliminated_in": self.eliminated_in,
            "reason": None if self.reason is None else dataclasses.asdict(self.reason),
            "retired": self.retired,
            "note": self.note,
        }

    @classmethod
    def from_json(cls, table: Mapping[str, Any]) -> ArmRecord:
        """Read back what `as_json` wrote."""
        groups: dict[int, Kinds] = {}
        for number, kinds in table["groups"].items():
            groups[int(number)] = {}
            for name, (count, total) in kinds.items():
                *facts, precision, alone = map(int, name.split(":"))
                kind = CohortFacts(*facts), precision, alone
                groups[int(number)][kind] = count, int(total)
        return cls(
            groups=groups,
            users=table["users"],
            lost=list(table["lost"]),
            last=table["last"],
            latest=None if table["latest"] is None else CohortFacts(*table["latest"]),
            eliminated_in=table["eliminated_in"],
            reason=table["reason"] and EliminationReason(**table["reason"]),
            retired=table["retired"],
            note=table["note"],
        )


def _list_facts(facts: CohortFacts) -> tuple[int, int, int]:
    return facts.size, facts.floor, facts.survivors


def retire(records: Sequence[ArmRecord], arm: int, note: str, batch: int) -> None:
    """Take an arm out by hand after batch `batch`; one must be left."""
    racing = [number for number, record in enumerate(records) if record.active]
    if arm not in racing:
        raise InputError("arm", arm, f"one in the race: {racing}")
    if len(racing) == 1:
        raise InputError("arm", arm, "another: it is the only one in the race")
    record = records[arm]
    record.eliminated_in, record.note, record.retired = batch, note, True


def check_outcomes(
    outcomes: Sequence[CohortSum], batch: int, requested: Mapping[int, int]
) -> None:
    """Refuse sums nobody asked for: wrong batch, arm, size, twice, or nobody in it."""
    seen: set[int] = set()
    for outcome in outcomes:
        if outcome.batch != batch:
            raise InputError("batch of an outcome", outcome.batch, f"{batch}")
        if outcome.arm not in requested or outcome.arm in seen:
            allowed = f"each of {sorted(requested)} at most once"
            raise InputError("arm of an outcome", outcome.arm, allowed)
        seen.add(outcome.arm)
        # More than requested is right: uneven nodes make a draw invite more users
        # until its floor is the planned one.
        if outcome.cohort_size < requested[outcome.arm]:
            raise InputError(
                "cohort size of an outcome",
                outcome.cohort_size,
                f"at least the {requested[outcome.arm]} users requested",
            )
        if not 1 <= outcome.honest_floor <= outcome.survivors <= outcome.cohort_size:
            raise InputError(
                "survivors of an outcome",
                f"{outcome.survivors} (floor {outcome.honest_floor})",
                f"at least the floor and at most {outcome.cohort_size}",
            )


class RecordedPolicy(ABC):
    """The part of `Policy` that does not depend on which arm is asked next.

    Parameters
    ----------
    spec : PolicySpec
        What is promised, and to whom.
    state : State, optional
        What `state` gave: decisions are kept, never recomputed.
    """

    def __init__(self, spec: PolicySpec, state: State | None = None) -> None:
        self.spec = spec.resolved()
        assert self.spec.ratio is not None
        self._schedule = Schedule(self.spec.ratio, self.spec.first_batch)
        self._confidence = confidence_for(self.spec)
        self._evidence = evidence_for(self.spec)
        self._records = [ArmRecord() for _ in range(self.spec.arms)]
        self._batch = 1
        self._limit: int | None = None  # of users in all, after the next batch
        self._finished: str | None = None
        self._shown: dict[Arm, tuple[int, Interval]] = {}  # with the newest cohort
        if state is None:
            self._close_if_over()
            return
        self._batch, self._limit = state["batch"], state.get("limit")
        self._finished = state["finished"]
        arms = state["arms"]
        self._records = [
            ArmRecord.from_json(arms[str(arm)]) for arm in range(self.spec.arms)
        ]

    def state(self) -> State:
        """Return JSON-ready state."""
        return {
            "schema_version": 1,
            "spec": self.spec.as_json(),
            "batch": self._batch,
            "limit": self._limit,
            "finished": self._finished,
            **self._own_state(),
            "arms": {
                str(arm): record.as_json() for arm, record in enumerate(self._records)
            },
        }

    @property
    def finished(self) -> str | None:
        """Why it is over, or None."""
        return self._finished

    @property
    def batch(self) -> int:
        """Number of the batch that is requested next."""
        return self._batch

    @property
    def users(self) -> int:
        """Users asked so far, void cohorts included."""
        return sum(record.users for record in self._records)

    def arms(self) -> Sequence[ArmView]:
        """Return every arm's estimate, interval and status."""
        self._compute_intervals(range(self.spec.arms))
        return tuple(self._view(arm) for arm in range(self.spec.arms))

    def limit(self, users: int) -> None:
        """Take note that the next batch can ask no more than `users` users."""
        self._limit = min(self.users + users, self.spec.horizon)
        self._close_if_over()

    def stop(self, reason: str) -> None:
        """End it from outside; a first reason stays."""
        self._finished = self._finished or reason

    def retire(self, arm: Arm, reason: str) -> None:
        """Take an arm out by hand; with one arm left there is nothing to learn.

        Levels are shared as before: elimination drops an arm for one that is no better
        with probability at most p, whatever the retirement was decided by.
        """
        if self._finished:
            raise InputError("arm", arm, "none: the experiment is over")
        retire(self._records, arm, reason, self._batch - 1)
        self._close_if_over()

    @abstractmethod
    def _close_if_over(self) -> None:
        """Say why it is over, if it is."""

    def _own_state(self) -> State:
        return {}

    @property
    def _most(self) -> int:
        """Users that may be asked in all, as far as is known."""
        most = self.spec.horizon
        return most if self._limit is None else min(most, self._limit)

    def _active(self) -> list[Arm]:
        return [arm for arm, record in enumerate(self._records) if record.active]

    def _interval(self, arm: Arm) -> Interval:
        """Return the estimate and the interval of an arm that was heard."""
        self._compute_intervals([arm])
        return self._shown[arm][1]

    def _compute_intervals(self, arms: Iterable[Arm]) -> None:
        """Compute the intervals of the arms that were heard since they last were.

        Arms that were heard alike have the same test and are looked at together.
        """
        alike: defaultdict[tuple[int, History], list[Arm]] = defaultdict(list)
        for arm in arms:
            record = self._records[arm]
            if record.last and self._shown.get(arm, (0,))[0] != record.last:
                alike[record.last, record.heard].append(arm)
        for (last, heard), members in alike.items():
            groups = self._evidence.group_of(last) + 1
            for start in range(0, len(members), _TOGETHER):
                some = members[start : start + _TOGETHER]
                rows = np.concatenate([self._records[arm].row(groups) for arm in some])
                found = np.stack(self._evidence.interval(last, heard, rows), axis=1)
                for arm, (estimate, lower, upper) in zip(
                    some, found.tolist(), strict=True
                ):
                    self._shown[arm] = last, (estimate, lower, upper)

    def _view(self, arm: Arm) -> ArmView:
        record = self._records[arm]
        heard = bool(record.last)
        estimate, lower, upper = self._shown[arm][1] if heard else (None, 0.0, 1.0)
        return ArmView(
            arm,
            record.people(),
            estimate,
            lower,
            upper,
            active=record.active,
            eliminated_in=record.eliminated_in,
            reason=record.reason,
            retired=record.retired,
            asked=record.users,
            note=record.note,
        )
