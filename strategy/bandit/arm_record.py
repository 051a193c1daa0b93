"""What a policy remembers of one arm, and how it is written down."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wallflower.protocol.errors import InputError
from wallflower.strategy.bandit.groups import CohortFacts, History, heard_from
from wallflower.strategy.bandit.policy import CohortSum

# Cohorts of one kind: how many, and the sum of their integers by their precision.
Kind = tuple[int, int]
Kinds = dict[tuple[CohortFacts, int], Kind]


@dataclass(slots=True)
class ArmRecord:
    """The delivered cohorts of one arm, group by group; sums are exact.

    Attributes
    ----------
    groups : what came, by the group of the plan, the cohort's facts and its precision.
    users : asked, delivered or not.
    last : place in the plan of the newest cohort that came, 0 before the first.
    latest : what that cohort was.
    retired : taken out by hand.
    """

    groups: dict[int, Kinds] = field(default_factory=dict)
    users: int = 0
    last: int = 0
    latest: CohortFacts | None = None
    eliminated_in: int | None = None
    reason: str = ""
    retired: bool = False
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
                for (facts, _), (count, _) in kinds.items():
                    counts[number][facts] += count
            self._heard = heard_from(counts)
        return self._heard

    def add(self, outcome: CohortSum, place: int, group: int) -> None:
        """Take a delivered cohort, which the plan has at `place` in `group`."""
        facts = CohortFacts(
            outcome.cohort_size, outcome.honest_floor, outcome.survivors
        )
        kinds = self.groups.setdefault(group, {})
        count, total = kinds.get((facts, outcome.precision), (0, 0))
        kinds[facts, outcome.precision] = count + 1, total + outcome.total
        self.last, self.latest, self._heard = place, facts, None

    def people(self) -> int:
        """Count the people in its sums."""
        return sum(n * facts.survivors for group in self.heard for facts, n in group)

    def estimate(self, pooled: int) -> float:
        """Mean reward over the newest `pooled` groups."""
        newest = sorted(self.groups)[-pooled:]
        users = sum(
            count * facts.survivors
            for number in newest
            for (facts, _), (count, _) in self.groups[number].items()
        )
        return float(sum(map(self._sum, newest), Fraction(0)) / users)

    def total(self) -> Fraction:
        """Add up everything that came, in units of reward."""
        return sum(map(self._sum, self.groups), Fraction(0))

    def row(self, groups: int) -> NDArray[np.float64]:
        """Give the sums as one row of a table with a column per group of the plan."""
        row = np.zeros((1, groups))
        for number in self.groups:
            row[0, number] = float(self._sum(number))
        return row

    def _sum(self, group: int) -> Fraction:
        kinds = self.groups[group].items()
        parts = (Fraction(total, precision) for (_, precision), (_, total) in kinds)
        return sum(parts, Fraction(0))

    def as_json(self) -> dict[str, Any]:
        """Give JSON types; a kind is written as size, floor, survivors, precision."""
        return {
            "groups": {
                str(number): {
                    ":".join(map(str, (*_written(facts), precision))): [
                        count,
                        str(total),
                    ]
                    for (facts, precision), (count, total) in kinds.items()
                }
                for number, kinds in self.groups.items()
            },
            "users": self.users,
            "last": self.last,
            "latest": None if self.latest is None else list(_written(self.latest)),
            "eliminated_in": self.eliminated_in,
            "reason": self.reason,
            "retired": self.retired,
        }

    @classmethod
    def from_json(cls, table: Mapping[str, Any]) -> ArmRecord:
        """Read back what `as_json` wrote."""
        groups: dict[int, Kinds] = {}
        for number, kinds in table["groups"].items():
            groups[int(number)] = {}
            for name, (count, total) in kinds.items():
                *facts, precision = map(int, name.split(":"))
                groups[int(number)][CohortFacts(*facts), precision] = count, int(total)
        return cls(
            groups=groups,
            users=table["users"],
            last=table["last"],
            latest=None if table["latest"] is None else CohortFacts(*table["latest"]),
            eliminated_in=table["eliminated_in"],
            reason=table["reason"],
            retired=table["retired"],
        )


def _written(facts: CohortFacts) -> tuple[int, int, int]:
    return facts.size, facts.floor, facts.survivors


def retire(records: Sequence[ArmRecord], arm: int, reason: str, batch: int) -> None:
    """Take an arm out by hand after batch `batch`; one must be left."""
    racing = [number for number, record in enumerate(records) if record.active]
    if arm not in racing:
        raise InputError("arm", arm, f"one in the race: {racing}")
    if len(racing) == 1:
        raise InputError("arm", arm, "another: it is the only one in the race")
    record = records[arm]
    record.eliminated_in, record.reason, record.retired = batch, reason, True


def check_outcomes(
    outcomes: Sequence[CohortSum], batch: int, wished: Mapping[int, int]
) -> None:
    """Refuse sums nobody asked for: wrong batch, arm, size, twice, or nobody in it."""
    seen: set[int] = set()
    for outcome in outcomes:
        if outcome.batch != batch:
            raise InputError("batch of an outcome", outcome.batch, f"{batch}")
        if outcome.arm not in wished or outcome.arm in seen:
            allowed = f"each of {sorted(wished)} at most once"
            raise InputError("arm of an outcome", outcome.arm, allowed)
        seen.add(outcome.arm)
        # More than wished for is right: uneven nodes make a draw invite more users
        # until its floor is the planned one.
        if outcome.cohort_size < wished[outcome.arm]:
            raise InputError(
                "cohort size of an outcome",
                outcome.cohort_size,
                f"at least the {wished[outcome.arm]} users wished for",
            )
        if not 1 <= outcome.honest_floor <= outcome.survivors <= outcome.cohort_size:
            raise InputError(
                "survivors of an outcome",
                f"{outcome.survivors} (floor {outcome.honest_floor})",
                f"at least the floor and at most {outcome.cohort_size}",
            )
