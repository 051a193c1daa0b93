"""What every user has already spent: append-only, written before the answer leaves.

One SQLite file serves all nodes of a process (a phone has one node, a gateway or the
local engine many). A row is one node's users in one cohort. Spends that wait at the
same time share one transaction and one disk flush, and so do questions, so thousands of
nodes cost little more than one; nobody's answer leaves before his row is on disk.

Other processes may append to the same file: each transaction first reads what they
wrote, so two processes of one node cannot both spend the same budget.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from sys import intern
from typing import Any, TypeAlias

from wallflower.clients.node import one_time_answers, prices
from wallflower.clients.node.ledger_chain import SCHEMA as CHAIN_SCHEMA
from wallflower.clients.node.ledger_chain import Chain
from wallflower.clients.node.ledger_thread import LedgerThread
from wallflower.clients.node.one_time_answers import OneTimeAnswer
from wallflower.clients.node.prices import Amount, Price
from wallflower.clients.node.rollback_counter import Counter
from wallflower.clients.node.spends import NodeAccount, Spend, repeated
from wallflower.protocol.accounting.account import NOTHING, Account, Cost
from wallflower.protocol.errors import (
    LedgerMismatchError,
    RefusalError,
    UnavailableError,
)
from wallflower.protocol.files.closing import Closing
from wallflower.protocol.files.sqlite import open_database, transaction

_VERSION = 3  # of the tables; another program's file is not touched
_UNAVAILABLE = "ledger-unavailable"
# What reading a row raises that nobody could have written.
_UNREADABLE = (ValueError, TypeError, ArithmeticError, RecursionError)
_BUSY_MS = 30_000  # how long a spend waits for other processes …
_READY_MS = 5_000  # … and whoever only asks whether it could be written
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
)

_Look: TypeAlias = Callable[[], Any]
_Entry: TypeAlias = Spend | OneTimeAnswer | Price
_Row: TypeAlias = tuple[str | int | float, ...]  # of the table of spends
_NO_SPENDS = NodeAccount()  # of a node that never answered; nothing is added to it


class Ledger(Closing):
    """The spends of all nodes of this process, in one file.

    Parameters
    ----------
    path : Path
        The file; made with mode 0600 if it is not there.
    counter : Counter, optional
        Kept apart from the file; with it a ledger that was rolled back, replaced or
        copied is refused.
    """

    def __init__(self, path: Path, counter: Counter | None = None) -> None:
        self._path = path
        self._counter = counter
        self._chain: Chain | None = None
        self._accounts: dict[str, NodeAccount] = {}
        self._last_read = 0
        self._claimed: set[tuple[str, str, str]] = set()  # node, run, cohort
        self._last_claim = 0
        self._prices: dict[str, Amount] = {}  # by run
        self._known_until = 0.0  # till when it need not be tried again
        self._caught_up = self._probed = False  # by one of those who wait together
        self._thread: LedgerThread[_Entry | _Look] = LedgerThread(self._do)
        try:
            self._database = self._thread.call(self._open)
        except BaseException:
            self._thread.close(lambda: None)
            raise

    def close(self) -> None:
        """Write what waits, close the file, end the thread."""
        self._thread.close(self._database.close)

    async def claim(self, claim: OneTimeAnswer) -> None:
        """Claim an answer that is given once; returns when that is on disk.

        Raises
        ------
        RefusalError
            Another answer was given before, or the ledger cannot be written: then
            nothing may leave the node.
        """
        await self._thread.done(claim)

    async def attended(self, node_id: str, run_id: str) -> bool:
        """Return whether any process ever connected to a gRPC server for a run."""
        found: bool = await self._thread.done(
            lambda: one_time_answers.attended(self._database, node_id, run_id)
        )
        return found

    async def spend(self, entry: Spend) -> None:
        """Write a spend; returns when it is on disk.

        Raises
        ------
        RefusalError
            The cohort was answered before, a user took part too often, the budget does
            not suffice (`BudgetError`), or the ledger cannot be written: then nothing
            may leave the node.
        """
        await self._thread.done(entry)

    async def ready(self) -> None:
        """Raise RefusalError if nothing could be written now; wait only briefly.

        Asked before people are invited: a ledger that is locked, full or rolled back
        must not cost them their one turn.
        """
        await self._thread.done(self._probe)

    async def prepare(self, entry: Spend) -> Mapping[str, str]:
        """Return the users who could not make a spend now, each with its code.

        Raises RefusalError if nothing could be written, the cohort was answered
        before, or the price is not the run's. Nothing is written but a run's price.
        """
        known = self._prices.get(entry.run_id)
        if known is None:
            await self.ready()  # a spend may wait for long, a question may not
            await self._thread.done(entry.price)
        elif refusal := prices.check_same(known, entry.price):
            raise refusal

        def look() -> dict[str, str]:
            self._probe()
            if self._was_answered(entry.node_id, entry.run_id, entry.cohort_id):
                raise repeated(entry.cohort_id)
            return self._accounts.get(entry.node_id, _NO_SPENDS).unable(entry)

        found: dict[str, str] = await self._thread.done(look)
        return found

    async def answered(self, node_id: str, run_id: str, cohort_id: str) -> bool:
        """Tell whether a cohort was answered before, in this process or another."""

        def look() -> bool:
            return self._was_answered(node_id, run_id, cohort_id)

        found: bool = await self._thread.done(look)
        return found

    async def latest_cohorts(
        self, node_id: str, run_id: str, most: int
    ) -> Sequence[str]:
        """Return the cohorts of a run that a node answered last."""

        def look() -> list[str]:
            self._refresh()
            account = self._accounts.get(node_id, _NO_SPENDS)
            return account.latest_cohorts(run_id, most)

        found: list[str] = await self._thread.done(look)
        return found

    async def spent(self, node_id: str, user: str) -> Account:
        """Give all that a user has spent so far."""

        def look() -> Account:
            self._refresh()
            return self._accounts.get(node_id, _NO_SPENDS).spent.get(user, NOTHING)

        account: Account = await self._thread.done(look)
        return account

    # --- in the ledger's own thread ----------------------------------------------

    def _open(self) -> sqlite3.Connection:
        try:
            database = open_database(self._path, wait_s=_BUSY_MS / 1000)
        except (OSError, sqlite3.Error) as error:
            raise self._cannot(error) from None
        try:
            self._chain = _prepare(database, self._counter)
            self._database = database
            self._catch_up()
        except (OSError, RefusalError, sqlite3.Error, *_UNREADABLE) as error:
            database.close()
            raise self._cannot(error) from None
        return database

    def _cannot(self, error: Exception) -> UnavailableError:
        refused = isinstance(error, RefusalError)
        kind = LedgerMismatchError if refused else UnavailableError
        return kind(
            f"ledger {self._path} cannot be opened ({error}); without it nothing may "
            "be answered"
        )

    def _probe(self) -> None:
        """See whether a spend could be written; many who ask at once wait once."""
        if self._probed:
            return
        if time.monotonic() < self._known_until:
            raise RefusalError(_UNAVAILABLE, f"ledger {self._path} cannot be written")
        try:
            self._database.execute(f"PRAGMA busy_timeout = {_READY_MS}")
            try:
                self._database.execute("BEGIN IMMEDIATE")
            finally:
                self._database.execute(f"PRAGMA busy_timeout = {_BUSY_MS}")
            try:
                if self._chain is not None:
                    self._chain.check()
            finally:
                self._database.execute("ROLLBACK")
            self._probed = True
        except (OSError, sqlite3.Error) as error:
            self._known_until = time.monotonic() + 1
            raise RefusalError(
                _UNAVAILABLE, f"ledger {self._path} cannot be written ({error})"
            ) from None

    def _was_answered(self, node_id: str, run_id: str, cohort_id: str) -> bool:
        self._refresh()
        account = self._accounts.get(node_id, _NO_SPENDS)
        return (run_id, cohort_id) in account.cohorts or (
            (node_id, run_id, cohort_id) in self._claimed
        )

    def _refresh(self) -> None:
        """Read what other processes wrote; many who ask at once read once."""
        if not self._caught_up:
            self._catch_up()
            self._caught_up = True

    def _catch_up(self) -> None:
        rows = self._database.execute(
            "SELECT number, node_id, run_id, cohort_id, users, kind, epsilon, "
            "precision, delta FROM spend WHERE number > ? ORDER BY number",
            (self._last_read,),
        )
        for number, node_id, run_id, cohort_id, users, *cost in rows:
            account = self._accounts.setdefault(node_id, NodeAccount())
            account.add(run_id, cohort_id, _cost(*cost), json.loads(users))
            self._last_read = number
        for number, node, run, cohort in one_time_answers.after(
            self._database, self._last_claim
        ):
            self._claimed.add((intern(node), intern(run), intern(cohort)))
            self._last_claim = number

    def _do(self, works: Sequence[_Entry | _Look]) -> list[Any]:
        """Look at, and write, all that waits; give each its result or exception."""
        self._caught_up = self._probed = False
        results = [
            None if isinstance(work, _Entry) else _outcome(work) for work in works
        ]
        entries = [work for work in works if isinstance(work, _Entry)]
        if entries:
            written = iter(self._write(entries))
            for place, work in enumerate(works):
                if isinstance(work, _Entry):
                    results[place] = next(written)
        return results

    def _write(self, entries: Sequence[_Entry]) -> list[Exception | None]:
        """Write one transaction; give for each entry None or why it is refused."""
        results: list[Exception | None]
        try:
            try:
                with transaction(self._database):
                    if self._chain is not None:
                        self._chain.check()
                    self._catch_up()
                    rows: list[_Row] = []
                    results = [self._entered(entry, rows) for entry in entries]
                    self._insert(rows)
                    mark = None if self._chain is None else self._chain.extend()
                if self._chain is not None and mark is not None:
                    self._chain.committed(mark)
            except BaseException:
                # What memory counted is not on disk; read everything anew.
                self._accounts.clear()
                self._claimed.clear()
                self._prices.clear()
                self._last_read = self._last_claim = 0
                raise
        except RefusalError as refusal:
            return [refusal] * len(entries)
        except Exception as error:
            return [_not_written(error)] * len(entries)
        return results

    def _entered(self, entry: _Entry, rows: list[_Row]) -> RefusalError | None:
        """Enter one; what is wrong with it alone is refused to it alone."""
        try:
            if isinstance(entry, OneTimeAnswer):
                return one_time_answers.append(self._database, entry)
            if isinstance(entry, Price):
                return self._agree(entry)
            return self._append(entry, rows)
        except (OSError, sqlite3.Error):
            raise  # of the file, and so of the whole transaction
        except Exception as error:
            return _not_written(error)

    def _agree(self, price: Price) -> RefusalError | None:
        """Take a run's price into account, or refuse it."""
        refusal = prices.append(self._database, price)
        if refusal is None:
            self._prices[price.run_id] = price.amount
        return refusal

    def _append(self, entry: Spend, rows: list[_Row]) -> RefusalError | None:
        """Take a spend into account and leave its row to be written, or refuse it."""
        account = self._accounts.setdefault(entry.node_id, NodeAccount())
        try:
            account.check(entry)
        except RefusalError as refusal:
            return refusal
        for name in (entry.node_id, entry.run_id, entry.cohort_id):
            name.encode()  # SQLite would refuse all rows for one that it cannot take
        rows.append(
            (
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
        )
        account.add(entry.run_id, entry.cohort_id, entry.cost, list(entry.users))
        return None

    def _insert(self, rows: Sequence[_Row]) -> None:
        self._database.executemany(
            "INSERT INTO spend (node_id, run_id, cohort_id, kind, epsilon, delta, "
            "precision, users, at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            rows,
        )
        # Nobody else writes meanwhile: the last number is that of these rows.
        (self._last_read,) = self._database.execute(
            "SELECT coalesce(max(number), 0) FROM spend"
        ).fetchone()


def _prepare(database: sqlite3.Connection, counter: Counter | None) -> Chain | None:
    """Make the tables; refuse those of another version."""
    chain = None if counter is None else Chain(database, counter)
    with transaction(database):  # another process may be at it too
        (version,) = database.execute("PRAGMA user_version").fetchone()
        begun = database.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone()
        if version != _VERSION and (version or begun):
            raise sqlite3.DatabaseError(
                f"its schema is version {version}, this program knows {_VERSION}"
            )
        for statement in (
            *_SCHEMA,
            *one_time_answers.SCHEMA,
            *prices.SCHEMA,
            *CHAIN_SCHEMA,
        ):
            database.execute(statement)
        database.execute(f"PRAGMA user_version = {_VERSION}")
        if chain is not None:
            chain.begin()
    return chain


def _cost(kind: str, epsilon: str, precision: int, delta: str) -> Cost:
    """Read a row's cost."""
    return Cost(kind, Fraction(epsilon), precision, Fraction(delta))


def _not_written(error: Exception) -> RefusalError:
    return RefusalError(_UNAVAILABLE, f"the ledger cannot be written ({error})")


def _outcome(look: _Look) -> Any:
    """Give what a look finds, or the exception that it ends with."""
    try:
        return look()
    except Exception as error:
        return error
