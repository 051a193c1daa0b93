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
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeAlias

from wallflower.clients.node import claims
from wallflower.clients.node.claims import Claim
from wallflower.clients.node.counter import Counter
from wallflower.clients.node.ledger_chain import SCHEMA as CHAIN_SCHEMA
from wallflower.clients.node.ledger_chain import Chain
from wallflower.clients.node.ledger_thread import LedgerThread
from wallflower.clients.node.spends import NodeAccount, Spend, repeated
from wallflower.protocol.accounting.account import NOTHING, Account, Cost
from wallflower.protocol.errors import RefusalError, UnavailableError
from wallflower.protocol.files.closing import Closing
from wallflower.protocol.files.sqlite import open_database, transaction

# 1: every row says its own ε̂ and g, so that spends of all kinds add up.
_VERSION = 1
_UNAVAILABLE = "ledger-unavailable"
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
        users     TEXT NOT NULL,
        at        REAL NOT NULL,
        precision INTEGER,
        UNIQUE (node_id, run_id, cohort_id)
    ) STRICT""",
    """CREATE TRIGGER IF NOT EXISTS spend_is_not_changed BEFORE UPDATE ON spend
    BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END""",
    """CREATE TRIGGER IF NOT EXISTS spend_is_not_removed BEFORE DELETE ON spend
    BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END""",
)

_Look: TypeAlias = Callable[[], Any]
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
        self._known_until = 0.0  # till when it need not be tried again
        self._caught_up = self._probed = False  # by one of those who wait together
        self._thread: LedgerThread[Spend | Claim | _Look] = LedgerThread(self._do)
        try:
            self._database = self._thread.call(self._open)
        except BaseException:
            self._thread.close(lambda: None)
            raise

    def close(self) -> None:
        """Write what waits, close the file, end the thread."""
        self._thread.close(self._database.close)

    async def claim(self, claim: Claim) -> None:
        """Claim an answer that is given once; returns when that is on disk.

        Raises
        ------
        RefusalError
            Another answer was given before, or the ledger cannot be written: then
            nothing may leave the node.
        """
        await self._thread.done(claim)

    async def attended(self, node_id: str, run_id: str) -> bool:
        """Tell whether a run was ever attended at a desk, by whatever process."""
        found: bool = await self._thread.done(
            lambda: claims.attended(self._database, node_id, run_id)
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

    async def prepare(self, entry: Spend) -> RefusalError | None:
        """See whether a spend could be written now; write nothing.

        Raises RefusalError if nothing could, or the cohort was answered before. What
        the users themselves are the reason for (a spent budget) is given: that the node
        could work is another matter.
        """

        def look() -> tuple[RefusalError | None]:
            self._probe()
            if self._was_answered(entry.node_id, entry.run_id, entry.cohort_id):
                raise repeated(entry.cohort_id)
            try:
                self._accounts.get(entry.node_id, _NO_SPENDS).check(entry)
            except RefusalError as refusal:
                return (refusal,)
            return (None,)

        found: tuple[RefusalError | None] = await self._thread.done(look)
        return found[0]

    async def answered(self, node_id: str, run_id: str, cohort_id: str) -> bool:
        """Tell whether a cohort was answered before, in this process or another."""

        def look() -> bool:
            return self._was_answered(node_id, run_id, cohort_id)

        found: bool = await self._thread.done(look)
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
        except (OSError, RefusalError, sqlite3.Error) as error:
            database.close()
            raise self._cannot(error) from None
        return database

    def _cannot(self, error: Exception) -> UnavailableError:
        return UnavailableError(
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
            "precision FROM spend WHERE number > ? ORDER BY number",
            (self._last_read,),
        )
        for number, node_id, run_id, cohort_id, users, *cost in rows:
            account = self._accounts.setdefault(node_id, NodeAccount())
            account.add(run_id, cohort_id, _cost(*cost), json.loads(users))
            self._last_read = number
        for number, *claim in claims.after(self._database, self._last_claim):
            node_id, run_id, cohort_id = claim
            self._claimed.add((node_id, run_id, cohort_id))
            self._last_claim = number

    def _do(self, works: Sequence[Spend | Claim | _Look]) -> list[Any]:
        """Look at, and write, all that waits; give each its result or exception."""
        self._caught_up = self._probed = False
        results = [
            None if isinstance(work, Spend | Claim) else _outcome(work)
            for work in works
        ]
        entries = [work for work in works if isinstance(work, Spend | Claim)]
        if entries:
            written = iter(self._write(entries))
            for place, work in enumerate(works):
                if isinstance(work, Spend | Claim):
                    results[place] = next(written)
        return results

    def _write(self, entries: Sequence[Spend | Claim]) -> list[Exception | None]:
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
                self._last_read = self._last_claim = 0
                raise
        except RefusalError as refusal:
            return [refusal] * len(entries)
        except Exception as error:
            return [_not_written(error)] * len(entries)
        return results

    def _entered(self, entry: Spend | Claim, rows: list[_Row]) -> RefusalError | None:
        """Enter one; what is wrong with it alone is refused to it alone."""
        try:
            if isinstance(entry, Claim):
                return claims.append(self._database, entry)
            return self._append(entry, rows)
        except (OSError, sqlite3.Error):
            raise  # of the file, and so of the whole transaction
        except Exception as error:
            return _not_written(error)

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
                entry.cost.precision,
                json.dumps(entry.users),
                time.time(),
            )
        )
        account.add(entry.run_id, entry.cohort_id, entry.cost, list(entry.users))
        return None

    def _insert(self, rows: Sequence[_Row]) -> None:
        self._database.executemany(
            "INSERT INTO spend (node_id, run_id, cohort_id, kind, epsilon, precision, "
            "users, at) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            rows,
        )
        # Nobody else writes meanwhile: the last number is that of these rows.
        (self._last_read,) = self._database.execute(
            "SELECT coalesce(max(number), 0) FROM spend"
        ).fetchone()


def _prepare(database: sqlite3.Connection, counter: Counter | None) -> Chain | None:
    """Make the tables, or bring those of an older version up to this one."""
    chain = None if counter is None else Chain(database, counter)
    with transaction(database):  # another process may be at it too
        (version,) = database.execute("PRAGMA user_version").fetchone()
        if version > _VERSION:
            raise sqlite3.DatabaseError(
                f"its schema is version {version}, this program knows {_VERSION}"
            )
        columns = {row[1] for row in database.execute("PRAGMA table_info (spend)")}
        if columns and "precision" not in columns:
            database.execute("ALTER TABLE spend ADD COLUMN precision INTEGER")
        for statement in (*_SCHEMA, *claims.SCHEMA, *CHAIN_SCHEMA):
            database.execute(statement)
        database.execute(f"PRAGMA user_version = {_VERSION}")
        if chain is not None:
            chain.begin()
    return chain


def _cost(kind: str, epsilon: str, precision: int | None) -> Cost:
    """Read a row's cost; rows of the first schema say less and count as their worst."""
    if precision is None:
        return Cost.at_most(kind, Fraction(epsilon) * (kind != "none"))
    return Cost(kind, Fraction(epsilon), precision)


def _not_written(error: Exception) -> RefusalError:
    return RefusalError(_UNAVAILABLE, f"the ledger cannot be written ({error})")


def _outcome(look: _Look) -> Any:
    """Give what a look finds, or the exception that it ends with."""
    try:
        return look()
    except Exception as error:
        return error
