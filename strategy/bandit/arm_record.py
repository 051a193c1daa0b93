"""What a policy remembers of one arm, and how it is written down."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wallflower.protocol.errors import InputError
from wallflower.strategy.bandit.confidence import CohortFacts, History
from wallflower.strategy.bandit.policy import CohortOutcome


@dataclass(slots=True)
class ArmRecord:
    """The delivered cohorts of one arm; sums in units of reward, exactly."""

    facts: History = ()
    sums: list[Fraction] = field(default_factory=list)
    batches: list[int] = field(default_factory=list)
    users: int = 0  # asked, delivered or not
    eliminated_in: int | None = None
    reason: str = ""
    retired: bool = False  # by hand

    @property
    def active(self) -> bool:
        """Still in the race."""
        return self.eliminated_in is None

    def add(self, outcome: CohortOutcome, level_batch: int) -> None:
        """Take a delivered cohort."""
        facts = CohortFacts(
            level_batch, outcome.cohort_size, outcome.honest_floor, outcome.survivors
        )
        self.facts = (*self.facts, facts)
        self.sums.append(Fraction(outcome.total, outcome.precision))
        self.batches.append(outcome.batch)

    def estimate(self, pooled: int) -> float:
        """Mean reward over the newest `pooled` cohorts."""
        users = sum(facts.survivors for facts in self.facts[-pooled:])
        return float(sum(self.sums[-pooled:], Fraction(0)) / users)

    def row(self, places: Sequence[int], cohorts: int) -> NDArray[np.float64]:
        """Give the sums as one row of a table with a column per planned cohort."""
        row = np.zeros((1, cohorts))
        row[0, [place - 1 for place in places]] = [float(value) for value in self.sums]
        return row

    def as_json(self) -> dict[str, Any]:
        """Give JSON types."""
        return {
            "facts": [list(dataclasses.astuple(facts)) for facts in self.facts],
            "sums": [str(value) for value in self.sums],
            "batches": list(self.batches),
            "users": self.users,
            "eliminated_in": self.eliminated_in,
            "reason": self.reason,
            "retired": self.retired,
        }

    @classmethod
    def from_json(cls, table: Mapping[str, Any]) -> ArmRecord:
        """Read back what `as_json` wrote."""
        return cls(
            facts=tuple(CohortFacts(*row) for row in table["facts"]),
            sums=[Fraction(text) for text in table["sums"]],
            batches=list(table["batches"]),
            users=table["users"],
            eliminated_in=table["eliminated_in"],
            reason=table["reason"],
            retired=table["retired"],
        )


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
    outcomes: Sequence[CohortOutcome], batch: int, wished: Mapping[int, int]
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
