"""What spends, prices and one-time answers are, and what users may still spend.

A node says who cannot pay a price. For many prices, that would tell what each person
has left. So a run has one price, whatever its cohorts cost exactly, and only a few
different prices get an answer within `PRICE_WINDOW_DAYS`. Both are written down: a new
process does not begin anew.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cache, lru_cache
from itertools import islice
from sys import intern
from typing import Protocol, TypeAlias

from wallflower.clients.consent import ClientPolicy
from wallflower.protocol.accounting.account import NOTHING, Account, Cost, cost_of
from wallflower.protocol.cohort import from_rational
from wallflower.protocol.errors import BudgetError, RefusalError, TermsError
from wallflower.protocol.numbers import round_up
from wallflower.protocol.privacy.mechanism import CohortMechanism
from wallflower.protocol.refusals import RefusalCode
from wallflower.protocol.wire.cohort_pb2 import CohortSpec

PRICE_WINDOW_DAYS = 30
CONNECTED = "connected"  # a stage of no cohort: the run has a gRPC server

Amount: TypeAlias = tuple[str, Fraction, Fraction]  # kind, ε, own δ


@dataclass(frozen=True, slots=True)
class Price:
    """What each cohort of a run costs a user at most.

    Attributes
    ----------
    cost : of any cohort that the node's policy accepts at the run's ε. It does not
        depend on a cohort's size, which the server chooses.
    most : different prices that may be answered within `PRICE_WINDOW_DAYS`.
    """

    run_id: str
    cost: Cost
    most: int

    @property
    def amount(self) -> Amount:
        """What tells prices apart."""
        return self.cost.kind, self.cost.epsilon, self.cost.privacy_delta


@dataclass(frozen=True, slots=True)
class OneTimeAnswer:
    """One answer of one node; `digest` is of the request and of the answer."""

    node_id: str
    run_id: str
    cohort_id: str
    stage: str
    digest: bytes

    @classmethod
    def connection(cls, node_id: str, run_id: str) -> OneTimeAnswer:
        """Return the entry that a run's work goes through a gRPC server."""
        return cls(node_id, run_id, "", CONNECTED, b"")


@dataclass(frozen=True, slots=True)
class Spend:
    """One node's users in one cohort, and what it costs each of them.

    Attributes
    ----------
    cost : to each of the users; costs of all kinds go into one account.
    most_epsilon : what a user may spend in all, as ε of (ε, δ)-DP.
    privacy_delta : the δ of that total.
    most_participations : how often a user may take part in one run.
    price : of the run; who cannot pay it is left out, whatever this cohort costs.
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


@dataclass(frozen=True, slots=True)
class Withdrawal:
    """A user of a node who does not want to take part any more, in anything."""

    node_id: str
    user: str


class NodeLedger(Protocol):
    """What a node needs of its ledger; `Ledger` keeps it in a file."""

    async def spend(self, entry: Spend) -> None:
        """Write a spend, or raise RefusalError; returns when it is on disk."""
        ...

    async def prepare(self, entry: Spend) -> Mapping[str, str]:
        """Return the users who could not make a spend now, each with its code."""
        ...

    async def record_answer(self, answer: OneTimeAnswer) -> None:
        """Write an answer that is given once, or raise RefusalError."""
        ...

    async def withdrawn(self, node_id: str) -> Set[str]:
        """Return the users who withdrew."""
        ...

    async def has_answered(self, node_id: str, run_id: str, cohort_id: str) -> bool:
        """Return whether a cohort was answered before."""
        ...

    async def latest_cohorts(
        self, node_id: str, run_id: str, most: int
    ) -> Sequence[str]:
        """Return the cohorts of a run that a node answered last."""
        ...


@dataclass(slots=True)
class NodeAccount:
    """What one node's rows add up to; `cohorts` are run and cohort, in their order.

    `withdrawn` users cannot spend any more; the code says no more than that.
    """

    cohorts: dict[tuple[str, str], None] = field(default_factory=dict)
    withdrawn: set[str] = field(default_factory=set)
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

    def find_unable(self, entry: Spend) -> dict[str, str]:
        """Return the users who cannot make this spend, each with the refusal's code."""

        @cache  # many users have the same history, and most have none
        def refusal_code(account: Account, times: int) -> str:
            try:
                check_user(account, times, entry)
            except RefusalError as refusal:
                return refusal.code
            return ""

        if not self.spent and not self.withdrawn and not refusal_code(NOTHING, 0):
            return {}
        times = self.taken_part.get(entry.run_id, {})
        codes = (
            (
                user,
                RefusalCode.BUDGET_EXCEEDED
                if user in self.withdrawn
                else refusal_code(self.spent.get(user, NOTHING), times.get(user, 0)),
            )
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
            raise cohort_repeated(entry.cohort_id)
        if len(set(entry.users)) != len(entry.users):
            raise RefusalError(
                RefusalCode.USER_REPEATED, "a user is named twice in one cohort"
            )
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
    """Return what a cohort costs these users, under their node's policy."""
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


def largest_cost(
    spec: CohortSpec, mechanism: CohortMechanism, smallest_cohort: int
) -> Cost:
    """Return what any cohort of at least so many users costs at the spec's terms."""
    exact = cost_of(mechanism, spec.proved_inputs)
    if exact.kind == "none":
        return exact
    epsilon = from_rational("epsilon", spec.epsilon)
    return _largest_cost(exact.kind, epsilon, exact.privacy_delta, smallest_cohort)


@lru_cache(maxsize=1024)
def _largest_cost(
    kind: str, epsilon: Fraction, privacy_delta: Fraction, smallest_cohort: int
) -> Cost:
    largest = Cost.at_most(kind, epsilon, smallest_cohort)
    return replace(largest, privacy_delta=privacy_delta)


def select_able_users(
    users: Sequence[str],
    members: Collection[str],
    against: Mapping[str, str],
    dropped: dict[str, int],
) -> tuple[str, ...]:
    """Return the users who may take part; count the others in `dropped`, by reason.

    Each person is taken out alone, before anybody is shown the arm. Raises RefusalError
    where nobody is left, with the most frequent reason.
    """
    named = Counter(users)
    reasons: Counter[str] = Counter()
    able = []
    for user in users:
        if user not in members:
            reasons[RefusalCode.USER_UNKNOWN] += 1
        elif named[user] > 1:
            reasons[RefusalCode.USER_REPEATED] += 1
        elif user in against:
            reasons[against[user]] += 1
        else:
            able.append(user)
    if not able:
        code = max(reasons, key=reasons.__getitem__, default=RefusalCode.USER_REPEATED)
        raise RefusalError(RefusalCode(code), "no user of this node may take part")
    dropped.update(reasons)
    return tuple(able)


def cohort_repeated(cohort_id: str) -> RefusalError:
    """Return the refusal to answer a cohort a second time."""
    return RefusalError(
        RefusalCode.COHORT_REPEATED,
        f"cohort {cohort_id} was answered before; it is answered once",
    )


def check_same_price(known: Amount, price: Price) -> TermsError | None:
    """Return a refusal where a run's price is not what it was before."""
    if known == price.amount:
        return None
    return TermsError(RefusalCode.PRICE_CHANGED, "this run had another price before")


def check_user(before: Account, times: int, entry: Spend) -> None:
    """Refuse a spend of one user who took part in this run so many times before."""
    if times >= entry.most_participations:
        raise RefusalError(
            RefusalCode.USER_REPEATED,
            f"a user took part {entry.most_participations} times in this run, "
            "which is all they agreed to",
        )
    check_budget(before, entry)


def check_budget(before: Account, entry: Spend) -> None:
    """Refuse a spend where the run's price takes a total over what was agreed to.

    Users who agreed to a mechanism that promises nothing have no ε to keep to, and
    afterwards no promise can be kept. The exact cost is at most the price. Were it
    compared instead, a server could vary it by the size of its cohorts, and learn from
    the refusals what is left.
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
        f"{_round_down(max(entry.most_epsilon - spent, Fraction(0)))} "
        f"(at δ = {float(entry.privacy_delta):g})",
        round_up(total - entry.most_epsilon),
    )


def _round_down(value: Fraction) -> str:
    return f"{math.floor(value * 10_000) / 10_000:g}"
