"""What a ledger says, read without touching it: for whoever checks or plans a run."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from fractions import Fraction
from pathlib import Path

from wallflower.clients.node.spends import NodeAccount
from wallflower.protocol.accounting.account import Cost
from wallflower.protocol.errors import UnavailableError
from wallflower.protocol.files.sqlite import read_database


def spends_of(path: Path, run_id: str) -> Mapping[tuple[str, str], tuple[str, ...]]:
    """Give the users who spent in a run, by cohort and node."""
    with _reading(path) as database:
        rows = database.execute(
            "SELECT cohort_id, node_id, users FROM spend WHERE run_id = ?", (run_id,)
        ).fetchall()
        return {
            (cohort, node): tuple(json.loads(users)) for cohort, node, users in rows
        }


def read_accounts(path: Path) -> Mapping[str, NodeAccount]:
    """Return what the users of every node have spent so far."""
    accounts: dict[str, NodeAccount] = {}
    with _reading(path) as database:
        rows = database.execute(
            "SELECT node_id, run_id, cohort_id, users, kind, epsilon, precision, delta "
            "FROM spend ORDER BY number"
        )
        for node_id, run_id, cohort_id, users, kind, epsilon, precision, delta in rows:
            cost = Cost(kind, Fraction(epsilon), precision, Fraction(delta))
            account = accounts.setdefault(node_id, NodeAccount())
            account.add(run_id, cohort_id, cost, json.loads(users))
    return accounts


@contextmanager
def _reading(path: Path) -> Iterator[sqlite3.Connection]:
    try:
        with closing(read_database(path)) as database:
            yield database
    except (sqlite3.Error, OSError, ValueError, TypeError, RecursionError) as error:
        raise UnavailableError(f"ledger {path} cannot be read ({error})") from None
