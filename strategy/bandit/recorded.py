"""What every policy keeps: a record of each arm, the batch, and why it is over."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from wallflower.protocol.errors import InputError
from wallflower.strategy.bandit.arm_record import ArmRecord, retire
from wallflower.strategy.bandit.confidence import confidence_for
from wallflower.strategy.bandit.groups import History
from wallflower.strategy.bandit.policy import Arm, ArmView
from wallflower.strategy.bandit.schedule import Schedule
from wallflower.strategy.bandit.sequential_test import evidence_for
from wallflower.strategy.bandit.spec import PolicySpec

State: TypeAlias = Mapping[str, Any]  # JSON types
Interval: TypeAlias = tuple[float, float, float]  # estimate, lower and upper end
_TOGETHER = 256  # arms whose intervals are computed at once


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
        """Give JSON-ready state."""
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
        """Number of the batch that is wished for next."""
        return self._batch

    @property
    def users(self) -> int:
        """Users asked so far, void cohorts included."""
        return sum(record.users for record in self._records)

    def arms(self) -> Sequence[ArmView]:
        """Every arm's estimate, interval and status."""
        self._compute_intervals(range(self.spec.arms))
        return tuple(self._view(arm) for arm in range(self.spec.arms))

    def limit(self, users: int) -> None:
        """Take note that the next batch can ask no more than `users` users."""
        self._limit = min(self.users + users, self.spec.most_users)
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
        most = self.spec.most_users
        return most if self._limit is None else min(most, self._limit)

    def _active(self) -> list[Arm]:
        return [arm for arm, record in enumerate(self._records) if record.active]

    def _interval(self, arm: Arm) -> Interval:
        """Give the estimate and the interval of an arm that was heard."""
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
        )
