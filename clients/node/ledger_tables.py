"""The tables of a ledger's file: spends, prices of runs, answers that are given once.

A member that opens two sums of one cohort gives away their difference, and so does a
node that masks, confirms or unmasks twice. Each such answer is written here first, by
node, run, cohort and stage, with a digest of request and answer. The very same answer
to the very same request may leave again; nothing else ever does. No server, no new
process and no new key takes such a row back.

A node that connects to a gRPC server for a run writes that down too: it takes no Flower
messages for the run from then on.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from fractions import Fraction
from pathlib import Path
from sys import intern
from typing import TypeAlias

from wallflower.clients.node.rollback_counter import SCHEMA as CHAIN_SCHEMA
from wallflower.clients.node.spends import (
    CONNECTED,
    PRICE_WINDOW_DAYS,
    Amount,
    NodeAccount,
    OneTimeAnswer,
    Price,
    Spend,
    Withdrawal,
    check_same_price,
)
from wallflower.protocol.accounting.account import Cost
from wallflower.protocol.errors import RefusalError, TermsError, UnavailableError
from wallflower.protocol.files.sqlite import read_database
from wallflower.protocol.refusals import RefusalCode

SpendRow: TypeAlias = tuple[str | int | float, ...]
_VERSION = 5  # of the tables; another program's file is not touched
_DAY_S = 86_400.0
_SCHEMA = (
    """CREATE TABLE IF NOT EXISTS spend (
        number    INTEGER PRIMARY KEY,
        node_id   TEXT NOT NULL,
        run_id    TEXT NOT NULL,
        cohort_id TEXT NOT NULL,
        kind      TEXT NOT NULL,
        epsilon   TEXT NOT NULL,
        delta     TEXT NOT NULL,
        precision INTEGER NOT NULL,
        users     TEXT NOT NULL,
        at        REAL NOT NULL,
        UNIQUE (node_id, run_id, cohort_id)
    ) STRICT""",
    """CREATE TRIGGER IF NOT EXISTS spend_is_not_changed BEFORE UPDATE ON spend
    BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END""",
    """CREATE TRIGGER IF NOT EXISTS spend_is_not_removed BEFORE DELETE ON spend
    BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END""",
    """CREATE TABLE IF NOT EXISTS answer (
        number    INTEGER PRIMARY KEY,
        node_id   TEXT NOT NULL,
        run_id    TEXT NOT NULL,
        cohort_id TEXT NOT NULL,
        stage     TEXT NOT NULL,
        digest    BLOB NOT NULL,
        at        REAL NOT NULL,
        UNIQUE (node_id, run_id, cohort_id, stage)
    ) STRICT""",
    """CREATE TRIGGER IF NOT EXISTS answer_is_not_changed BEFORE UPDATE ON answer
    BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END""",
    """CREATE TRIGGER IF NOT EXISTS answer_is_not_removed BEFORE DELETE ON answer
    BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END""",
    """CREATE TABLE IF NOT EXISTS withdrawal (
        number  INTEGER PRIMARY KEY,
        node_id TEXT NOT NULL,
        user    TEXT NOT NULL,
        at      REAL NOT NULL,
        UNIQUE (node_id, user)
    ) STRICT""",
    """CREATE TABLE IF NOT EXISTS price (
        run_id  TEXT PRIMARY KEY,
        kind    TEXT NOT NULL,
        epsilon TEXT NOT NULL,
        delta   TEXT NOT NULL,
        at      REAL NOT NULL
    ) STRICT""",
    *CHAIN_SCHEMA,
)


def create_tables(database: sqlite3.Connection) -> None:
    """Make the tables in the caller's transaction; refuse those of another version."""
    (version,) = database.execute("PRAGMA user_version").fetchone()
    begun = database.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone()
    if version != _VERSION and (version or begun):
        raise sqlite3.DatabaseError(
            f"its schema is version {version}, this program knows {_VERSION}"
        )
    for statement in _SCHEMA:
        database.execute(statement)
    database.execute(f"PRAGMA user_version = {_VERSION}")


@contextmanager
def brief_lock(
    database: sqlite3.Connection, wait_ms: int, usual_ms: int
) -> Iterator[None]:
    """Hold the write lock and write nothing; other processes are waited for briefly."""
    database.execute(f"PRAGMA busy_timeout = {wait_ms}")
    try:
        database.execute("BEGIN IMMEDIATE")
    finally:
        database.execute(f"PRAGMA busy_timeout = {usual_ms}")
    try:
        yield
    finally:
        database.execute("ROLLBACK")


# --- spends ---------------------------------------------------------------------------


def spend_row(entry: Spend) -> SpendRow:
    """Return a spend as a row; raises where SQLite could not take its names."""
    for name in (entry.node_id, entry.run_id, entry.cohort_id):
        name.encode()  # SQLite would refuse all rows for one that it cannot take
    return (
        entry.node_id,
        entry.run_id,
        entry.cohort_id,
        entry.cost.kind,
        str(entry.cost.epsilon),
        str(entry.cost.privacy_delta),
        entry.cost.precision,
        json.dumps(entry.users),
        time.time(),
    )


def insert_spends(database: sqlite3.Connection, rows: Sequence[SpendRow]) -> int:
    """Write rows in the caller's transaction; return the last number of the table."""
    database.executemany(
        "INSERT INTO spend (node_id, run_id, cohort_id, kind, epsilon, delta, "
        "precision, users, at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        rows,
    )
    (last,) = database.execute("SELECT coalesce(max(number), 0) FROM spend").fetchone()
    return int(last)


def add_spends_after(
    database: sqlite3.Connection, number: int, accounts: dict[str, NodeAccount]
) -> int:
    """Add every row after a number to the nodes' accounts; return the last number."""
    rows = database.execute(
        "SELECT number, node_id, run_id, cohort_id, users, kind, epsilon, precision, "
        "delta FROM spend WHERE number > ? ORDER BY number",
        (number,),
    )
    # All are read before any is added: a row that cannot be read leaves no half of it.
    spends = [
        (node_id, run_id, cohort_id, _read_cost(*cost), json.loads(users), number)
        for number, node_id, run_id, cohort_id, users, *cost in rows
    ]
    for node_id, run_id, cohort_id, cost, users, last in spends:
        account = accounts.setdefault(node_id, NodeAccount())
        account.add(run_id, cohort_id, cost, users)
        number = last
    return number


def _read_cost(kind: str, epsilon: str, precision: int, delta: str) -> Cost:
    return Cost(kind, Fraction(epsilon), precision, Fraction(delta))


# --- answers that are given once ------------------------------------------------------


def append_answer(
    database: sqlite3.Connection, answer: OneTimeAnswer
) -> RefusalError | None:
    """Write an answer in the caller's transaction, or return why it is refused."""
    place = (answer.node_id, answer.run_id, answer.cohort_id, answer.stage)
    row = database.execute(
        "SELECT digest FROM answer "
        "WHERE (node_id, run_id, cohort_id, stage) = (?, ?, ?, ?)",
        place,
    ).fetchone()
    if row is None:
        database.execute(
            "INSERT INTO answer (node_id, run_id, cohort_id, stage, digest, at) "
            "VALUES (?, ?, ?, ?, ?, ?)",
            (*place, answer.digest, time.time()),
        )
        return None
    if bytes(row[0]) == answer.digest:
        return None
    return RefusalError(
        RefusalCode.COHORT_ALREADY_ANSWERED,
        f"stage {answer.stage} of cohort {answer.cohort_id} had its one answer",
    )


def add_answers_after(
    database: sqlite3.Connection, number: int, answered: set[tuple[str, str, str]]
) -> int:
    """Add node, run and cohort of every row after a number; return the last number."""
    rows = database.execute(
        "SELECT number, node_id, run_id, cohort_id FROM answer WHERE number > ? "
        "ORDER BY number",
        (number,),
    )
    for last, node_id, run_id, cohort_id in rows:
        answered.add((intern(node_id), intern(run_id), intern(cohort_id)))
        number = last
    return number


def has_connected(database: sqlite3.Connection, node_id: str, run_id: str) -> bool:
    """Return whether a node ever connected to a gRPC server for a run."""
    found = database.execute(
        "SELECT 1 FROM answer "
        "WHERE (node_id, run_id, cohort_id, stage) = (?, ?, '', ?)",
        (node_id, run_id, CONNECTED),
    )
    return found.fetchone() is not None


# --- withdrawals ----------------------------------------------------------------------


def append_withdrawal(database: sqlite3.Connection, entry: Withdrawal) -> None:
    """Write in the caller's transaction that a user withdrew; the first time stays."""
    database.execute(
        "INSERT INTO withdrawal (node_id, user, at) VALUES (?, ?, ?) "
        "ON CONFLICT DO NOTHING",
        (entry.node_id, entry.user, time.time()),
    )


def add_withdrawals_after(
    database: sqlite3.Connection, number: int, accounts: dict[str, NodeAccount]
) -> int:
    """Add every row after a number to the nodes' accounts; return the last number."""
    rows = database.execute(
        "SELECT number, node_id, user FROM withdrawal WHERE number > ? ORDER BY number",
        (number,),
    )
    for last, node_id, user in rows:
        accounts.setdefault(node_id, NodeAccount()).withdrawn.add(user)
        number = last
    return number


# --- prices ---------------------------------------------------------------------------


def read_prices(database: sqlite3.Connection) -> dict[str, Amount]:
    """Return the price of every run that was ever answered."""
    rows = database.execute("SELECT run_id, kind, epsilon, delta FROM price")
    return {
        run_id: (kind, Fraction(epsilon), Fraction(delta))
        for run_id, kind, epsilon, delta in rows
    }


def append_price(database: sqlite3.Connection, price: Price) -> TermsError | None:
    """Write a run's price in the caller's transaction, or return why it is refused."""
    now = time.time()
    known = read_prices(database)
    if price.run_id in known:
        return check_same_price(known[price.run_id], price)
    recent = {
        run_id
        for (run_id,) in database.execute(
            "SELECT run_id FROM price WHERE at > ?",
            (now - PRICE_WINDOW_DAYS * _DAY_S,),
        )
    }
    different = {known[run_id] for run_id in recent}
    if price.amount not in different and len(different) >= price.most:
        return TermsError(
            RefusalCode.TOO_MANY_PRICES,
            f"{price.most} different prices were stated within {PRICE_WINDOW_DAYS} "
            "days, which is all that this node answers",
        )
    kind, epsilon, delta = price.amount
    database.execute(
        "INSERT INTO price VALUES (?, ?, ?, ?, ?)",
        (price.run_id, kind, str(epsilon), str(delta), now),
    )
    return None


# --- a ledger of another process, read without touching it ----------------------------


def read_spends(path: Path, run_id: str) -> Mapping[tuple[str, str], tuple[str, ...]]:
    """Return the users who spent in a run, by cohort and node."""
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
        add_spends_after(database, 0, accounts)
        add_withdrawals_after(database, 0, accounts)
    return accounts


@contextmanager
def _reading(path: Path) -> Iterator[sqlite3.Connection]:
    try:
        with closing(read_database(path)) as database:
            yield database
    except (sqlite3.Error, OSError, ValueError, TypeError, RecursionError) as error:
        raise UnavailableError(f"ledger {path} cannot be read ({error})") from None
