"""What one node's spends add up to, and what its users may still spend."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache
from itertools import islice
from sys import intern

from wallflower.clients.consent import ClientPolicy
from wallflower.clients.node.prices import Price, largest_cost
from wallflower.protocol.accounting.account import NOTHING, Account, Cost, cost_of
from wallflower.protocol.errors import BudgetError, RefusalError
from wallflower.protocol.messages.port import USER_REPEATED, USER_UNKNOWN
from wallflower.protocol.numbers import round_up
from wallflower.protocol.privacy.mechanism import CohortMechanism
from wallflower.protocol.wire.cohort_pb2 import CohortSpec


@dataclass(frozen=True, slots=True)
class Spend:
    """One node's users in one cohort, and what it costs each of them.

    Attributes
    ----------
    cost : to each of the users; costs of all kinds go into one account.
    most_epsilon : what a user may spend in all, as ε of (ε, δ)-DP.
    privacy_delta : the δ at which it is reckoned.
    most_participations : how often a user may take part in one run.
    price : of the run; whoever cannot pay it is not asked, whatever this cohort costs.
    """

    node_id: str
    run_id: str
    cohort_id: str
    cost: Cost
    users: tuple[str, ...]
    most_epsilon: Fraction
    privacy_delta: Fraction
    most_participations: int
    price: Price


@dataclass(slots=True)
class NodeAccount:
    """What one node's rows add up to; `cohorts` are run and cohort, in their order."""

    cohorts: dict[tuple[str, str], None] = field(default_factory=dict)
    spent: dict[str, Account] = field(default_factory=dict)
    taken_part: dict[str, dict[str, int]] = field(default_factory=dict)

    def add(self, run_id: str, cohort_id: str, cost: Cost, users: list[str]) -> None:
        """Take a row into account."""
        self.cohorts[run_id, cohort_id] = None
        times = self.taken_part.setdefault(run_id, {})
        for user in users:
            # Users with the same history share one account.
            self.spent[user] = self.spent.get(user, NOTHING).plus(cost)
            times[user] = times.get(user, 0) + 1

    def unable(self, entry: Spend) -> dict[str, str]:
        """Return the users who cannot make this spend, each with the refusal's code."""

        @cache  # many users have the same history, and most have none
        def refusal_of(account: Account, times: int) -> str:
            try:
                check_user(account, times, entry)
            except RefusalError as refusal:
                return refusal.code
            return ""

        if not self.spent and not refusal_of(NOTHING, 0):
            return {}
        times = self.taken_part.get(entry.run_id, {})
        codes = (
            (user, refusal_of(self.spent.get(user, NOTHING), times.get(user, 0)))
            for user in entry.users
        )
        return {user: code for user, code in codes if code}

    def latest_cohorts(self, run_id: str, most: int) -> list[str]:
        """Return the cohorts of a run that were answered last, the last one first."""
        of_run = (cohort for run, cohort in reversed(self.cohorts) if run == run_id)
        return list(islice(of_run, most))

    def check(self, entry: Spend) -> None:
        """Refuse a spend that must not be."""
        if (entry.run_id, entry.cohort_id) in self.cohorts:
            raise repeated(entry.cohort_id)
        if len(set(entry.users)) != len(entry.users):
            raise RefusalError(USER_REPEATED, "a user is named twice in one cohort")
        times = self.taken_part.get(entry.run_id, {})
        for user in entry.users:
            check_user(self.spent.get(user, NOTHING), times.get(user, 0), entry)


def make_spend(
    policy: ClientPolicy,
    node_id: str,
    spec: CohortSpec,
    mechanism: CohortMechanism,
    users: tuple[str, ...],
) -> Spend:
    """Return what a cohort asks of these users, held against their node's policy."""
    return Spend(
        node_id=node_id,
        run_id=intern(spec.run_id),  # the nodes of a process keep one text
        cohort_id=intern(spec.cohort_id),
        cost=cost_of(mechanism, spec.proved_inputs),
        users=users,
        most_epsilon=policy.largest_total_epsilon,
        privacy_delta=policy.privacy_delta,
        most_participations=policy.largest_participations,
        price=Price(
            spec.run_id,
            largest_cost(spec, mechanism, policy.smallest_cohort),
            policy.largest_prices,
        ),
    )


def able_users(
    users: Sequence[str],
    members: Collection[str],
    against: Mapping[str, str],
    dropped: dict[str, int],
) -> tuple[str, ...]:
    """Return the users who may be asked; count the others in `dropped`, by reason.

    Each person is taken out alone, before anybody is shown the arm. Raises RefusalError
    where nobody is left, with the most frequent reason.
    """
    named = Counter(users)
    reasons: Counter[str] = Counter()
    able = []
    for user in users:
        if user not in members:
            reasons[USER_UNKNOWN] += 1
        elif named[user] > 1:
            reasons[USER_REPEATED] += 1
        elif user in against:
            reasons[against[user]] += 1
        else:
            able.append(user)
    if not able:
        code = max(reasons, key=reasons.__getitem__, default=USER_REPEATED)
        raise RefusalError(code, "no user of this node may be asked")
    dropped.update(reasons)
    return tuple(able)


def repeated(cohort_id: str) -> RefusalError:
    """Refuse to answer a cohort a second time."""
    return RefusalError(
        "cohort-repeated",
        f"cohort {cohort_id} was answered before; it is answered once",
    )


def check_user(before: Account, times: int, entry: Spend) -> None:
    """Refuse a spend of one user who took part in this run so many times before."""
    if times >= entry.most_participations:
        raise RefusalError(
            USER_REPEATED,
            f"a user took part {entry.most_participations} times in this run, "
            "which is all they agreed to",
        )
    check_budget(before, entry)


def check_budget(before: Account, entry: Spend) -> None:
    """Refuse a spend where the run's price takes a total over what was agreed to.

    Who agreed to a mechanism that promises nothing has no ε to keep to; afterwards
    nothing that is promised can be kept either. The exact cost is at most the price:
    were it compared instead, a server could vary it by the size of its cohorts, and
    learn from the refusals what is left.
    """
    cost = entry.price.cost
    if cost.kind == "none":
        return
    total = before.plus(cost).total(entry.privacy_delta)
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
