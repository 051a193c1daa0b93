"""What a run asks of a budget: one price a run, and few different ones in a month.

A node says who cannot be asked at a price. Asked for many prices, that would tell what
each person has left. So a run has one price, whatever its cohorts cost exactly, and
only a few different prices get an answer within `WINDOW_DAYS`. Both are written down:
a new process does not begin anew.
"""

from __future__ import annotations

import sqlite3
import time
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import TypeAlias

from wallflower.protocol.accounting.account import Cost, cost_of
from wallflower.protocol.cohort import from_rational
from wallflower.protocol.errors import TermsError
from wallflower.protocol.privacy.mechanism import CohortMechanism
from wallflower.protocol.wire.cohort_pb2 import CohortSpec

WINDOW_DAYS = 30
_DAY_S = 86_400.0
SCHEMA = (
    """CREATE TABLE IF NOT EXISTS price (
        run_id  TEXT PRIMARY KEY,
        kind    TEXT NOT NULL,
        epsilon TEXT NOT NULL,
        delta   TEXT NOT NULL,
        at      REAL NOT NULL
    ) STRICT""",
)

Amount: TypeAlias = tuple[str, Fraction, Fraction]  # kind, ε, own δ


@dataclass(frozen=True, slots=True)
class Price:
    """What each cohort of a run costs a user at most.

    Attributes
    ----------
    cost : of any cohort that the node's policy accepts at the run's ε. It does not
        depend on a cohort's size, which the server chooses.
    most : different prices that may be answered within `WINDOW_DAYS`.
    """

    run_id: str
    cost: Cost
    most: int

    @property
    def amount(self) -> Amount:
        """What tells prices apart."""
        return self.cost.kind, self.cost.epsilon, self.cost.privacy_delta


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


def read_prices(database: sqlite3.Connection) -> dict[str, Amount]:
    """Return the price of every run that was ever answered."""
    rows = database.execute("SELECT run_id, kind, epsilon, delta FROM price")
    return {
        run_id: (kind, Fraction(epsilon), Fraction(delta))
        for run_id, kind, epsilon, delta in rows
    }


def append(database: sqlite3.Connection, price: Price) -> TermsError | None:
    """Write a run's price in the caller's transaction, or return why it is refused."""
    now = time.time()
    known = read_prices(database)
    if price.run_id in known:
        return check_same(known[price.run_id], price)
    recent = {
        run_id
        for (run_id,) in database.execute(
            "SELECT run_id FROM price WHERE at > ?", (now - WINDOW_DAYS * _DAY_S,)
        )
    }
    different = {known[run_id] for run_id in recent}
    if price.amount not in different and len(different) >= price.most:
        return TermsError(
            "too-many-prices",
            f"{price.most} different prices were asked within {WINDOW_DAYS} days, "
            "which is all that this node answers",
        )
    kind, epsilon, delta = price.amount
    database.execute(
        "INSERT INTO price VALUES (?, ?, ?, ?, ?)",
        (price.run_id, kind, str(epsilon), str(delta), now),
    )
    return None


def check_same(known: Amount, price: Price) -> TermsError | None:
    """Return a refusal where a run's price is not what it was before."""
    if known == price.amount:
        return None
    return TermsError("price-changed", "this run asked another price before")
