"""What one node's spends add up to, and what its users may still spend."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction

from wallflower.protocol.accounting.account import NOTHING, Account, Cost
from wallflower.protocol.errors import BudgetError, RefusalError
from wallflower.protocol.numbers import round_up


@dataclass(frozen=True, slots=True)
class Spend:
    """One node's users in one cohort, and what it costs each of them.

    Attributes
    ----------
    cost : to each of the users; costs of all kinds go into one account.
    most_epsilon : what a user may spend in all, as ε of (ε, δ)-DP.
    privacy_delta : the δ at which it is reckoned.
    most_participations : how often a user may take part in one run.
    """

    node_id: str
    run_id: str
    cohort_id: str
    cost: Cost
    users: tuple[str, ...]
    most_epsilon: Fraction
    privacy_delta: Fraction
    most_participations: int


@dataclass(slots=True)
class NodeAccount:
    """What one node's rows add up to."""

    cohorts: set[tuple[str, str]] = field(default_factory=set)
    spent: dict[str, Account] = field(default_factory=dict)
    taken_part: dict[str, dict[str, int]] = field(default_factory=dict)

    def add(self, run_id: str, cohort_id: str, cost: Cost, users: list[str]) -> None:
        """Take a row into account."""
        self.cohorts.add((run_id, cohort_id))
        times = self.taken_part.setdefault(run_id, {})
        for user in users:
            # Users with the same history share one account.
            self.spent[user] = self.spent.get(user, NOTHING).plus(cost)
            times[user] = times.get(user, 0) + 1

    def check(self, entry: Spend) -> None:
        """Refuse a spend that must not be."""
        if (entry.run_id, entry.cohort_id) in self.cohorts:
            raise repeated(entry.cohort_id)
        if len(set(entry.users)) != len(entry.users):
            raise RefusalError("user-repeated", "a user is named twice in one cohort")
        times = self.taken_part.get(entry.run_id, {})
        for user in entry.users:
            if times.get(user, 0) >= entry.most_participations:
                raise RefusalError(
                    "user-repeated",
                    f"a user took part {entry.most_participations} times in this run, "
                    "which is all he agreed to",
                )
            check_budget(self.spent.get(user, NOTHING), entry)


def repeated(cohort_id: str) -> RefusalError:
    """Refuse to answer a cohort a second time."""
    return RefusalError(
        "cohort-repeated",
        f"cohort {cohort_id} was answered before; it is answered once",
    )


def check_budget(before: Account, entry: Spend) -> None:
    """Refuse a spend that takes one user's total over what she agreed to.

    Who agreed to a mechanism that promises nothing has no ε to keep to; afterwards
    nothing that is promised can be kept either.
    """
    if entry.cost.kind == "none":
        return
    total = before.plus(entry.cost).total(entry.privacy_delta)
    if total is not None and total <= entry.most_epsilon:
        return
    spent = before.total(entry.privacy_delta)
    if total is None or spent is None:
        raise BudgetError("any", "nothing: an answer without noise was given", "all")
    raise BudgetError(
        f"ε = {round_up(total - spent)} more",
        f"{_rounded_down(max(entry.most_epsilon - spent, Fraction(0)))} "
        f"(at δ = {float(entry.privacy_delta):g})",
        round_up(total - entry.most_epsilon),
    )


def _rounded_down(value: Fraction) -> str:
    return f"{math.floor(value * 10_000) / 10_000:g}"
