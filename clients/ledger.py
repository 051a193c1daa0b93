"""What every user has already spent: append-only, written before the answer leaves.

One SQLite file serves all nodes of a process (a phone has one node, a gateway or the
local engine many). A row is one node's users in one cohort. Spends that wait at the
same time share one transaction and one disk flush, so thousands of nodes cost little
more than one; nobody's answer leaves before his row is on disk.

Other processes may append to the same file: each transaction first reads what they
wrote, so two processes of one node cannot both spend the same budget.
"""

from __future__ import annotations

import asyncio
import json
import math
import sqlite3
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from types import TracebackType
from typing import Self

from clients import claims
from clients.claims import Claim
from protocol.account import NOTHING, Account, Cost
from protocol.errors import BudgetError, RefusalError, UnavailableError
from protocol.private_files import private_file
from protocol.quantities import round_up

# 1: every row says its own ε̂ and g, so that spends of all kinds add up.
_VERSION = 1
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
class _Account:
    """What one node's rows add up to."""

    cohorts: set[tuple[str, str]] = field(default_factory=set)
    spent: dict[str, Account] = field(default_factory=dict)
    taken_part: dict[str, dict[str, int]] = field(default_factory=dict)

    def add(self, run_id: str, cohort_id: str, cost: Cost, users: list[str]) -> None:
        self.cohorts.add((run_id, cohort_id))
        times = self.taken_part.setdefault(run_id, {})
        for user in users:
            # Users with the same history share one account.
            self.spent[user] = self.spent.get(user, NOTHING).plus(cost)
            times[user] = times.get(user, 0) + 1

    def check(self, entry: Spend) -> None:
        if (entry.run_id, entry.cohort_id) in self.cohorts:
            raise RefusalError(
                "cohort-repeated",
                f"cohort {entry.cohort_id} was answered before; it is answered once",
            )
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


class Ledger:
    """The spends of all nodes of this process, in one file.

    Parameters
    ----------
    path : Path
        The file; made with mode 0600 if it is not there.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._accounts: dict[str, _Account] = {}
        self._last_read = 0
        self._mutex = threading.Lock()
        self._waiting: list[tuple[Spend | Claim, asyncio.Future[None]]] = []
        self._draining = False
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="ledger")
        try:
            self._database = self._thread.submit(self._open).result()
        except BaseException:
            self._thread.shutdown()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Write what waits, close the file, end the thread."""
        self._thread.submit(self._database.close).result()
        self._thread.shutdown()

    async def claim(self, claim: Claim) -> None:
        """Claim an answer that is given once; returns when that is on disk.

        Raises
        ------
        RefusalError
            Another answer was given before, or the ledger cannot be written: then
            nothing may leave the node.
        """
        await self._written(claim)

    async def attended(self, node_id: str, run_id: str) -> bool:
        """Tell whether a run was ever attended at a desk, by whatever process."""
        return await asyncio.wrap_future(
            self._thread.submit(claims.attended, self._database, node_id, run_id)
        )

    async def spend(self, entry: Spend) -> None:
        """Write a spend; returns when it is on disk.

        Raises
        ------
        RefusalError
            The cohort was answered before, a user took part too often, the budget does
            not suffice (`BudgetError`), or the ledger cannot be written: then nothing
            may leave the node.
        """
        await self._written(entry)

    async def _written(self, entry: Spend | Claim) -> None:
        waits: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        with self._mutex:
            self._waiting.append((entry, waits))
            start, self._draining = not self._draining, True
        if start:
            self._thread.submit(self._drain)
        await waits

    async def check(self, entry: Spend) -> None:
        """Raise what `spend` would raise now, and write nothing."""

        def look() -> None:
            self._catch_up()
            self._accounts.get(entry.node_id, _Account()).check(entry)

        await asyncio.wrap_future(self._thread.submit(look))

    async def answered(self, node_id: str, run_id: str, cohort_id: str) -> bool:
        """Tell whether a cohort was answered before, in this process or another."""

        def look() -> bool:
            self._catch_up()
            account = self._accounts.get(node_id, _Account())
            return (run_id, cohort_id) in account.cohorts or claims.any_of(
                self._database, node_id, run_id, cohort_id
            )

        return await asyncio.wrap_future(self._thread.submit(look))

    async def spent(self, node_id: str, user: str) -> Account:
        """Give all that a user has spent so far."""

        def look() -> Account:
            self._catch_up()
            return self._accounts.get(node_id, _Account()).spent.get(user, NOTHING)

        return await asyncio.wrap_future(self._thread.submit(look))

    # --- in the ledger's own thread ----------------------------------------------

    def _open(self) -> sqlite3.Connection:
        try:
            private_file(self._path)
            database = sqlite3.connect(self._path, isolation_level=None, timeout=30)
        except (OSError, sqlite3.Error) as error:
            raise self._cannot(error) from None
        try:
            database.execute("PRAGMA journal_mode = WAL")
            database.execute("PRAGMA synchronous = FULL")
            _prepare(database)
            self._database = database
            self._catch_up()
        except sqlite3.Error as error:
            database.close()
            raise self._cannot(error) from None
        return database

    def _cannot(self, error: Exception) -> UnavailableError:
        return UnavailableError(
            f"ledger {self._path} cannot be opened ({error}); without it nothing may "
            "be answered"
        )

    def _catch_up(self) -> None:
        rows = self._database.execute(
            "SELECT number, node_id, run_id, cohort_id, users, kind, epsilon, "
            "precision FROM spend WHERE number > ? ORDER BY number",
            (self._last_read,),
        )
        for number, node_id, run_id, cohort_id, users, *cost in rows:
            account = self._accounts.setdefault(node_id, _Account())
            account.add(run_id, cohort_id, _cost(*cost), json.loads(users))
            self._last_read = number

    def _drain(self) -> None:
        while True:
            with self._mutex:
                batch, self._waiting = self._waiting, []
                if not batch:
                    self._draining = False
                    return
            results = self._write([entry for entry, _ in batch])
            by_loop: dict[
                asyncio.AbstractEventLoop,
                list[tuple[asyncio.Future[None], Exception | None]],
            ] = {}
            for (_, waits), result in zip(batch, results, strict=True):
                by_loop.setdefault(waits.get_loop(), []).append((waits, result))
            for loop, told in by_loop.items():
                if not loop.is_closed():
                    loop.call_soon_threadsafe(_tell, told)

    def _write(self, entries: Sequence[Spend | Claim]) -> list[Exception | None]:
        """Write one transaction; give for each entry None or why it is refused."""
        results: list[Exception | None]
        try:
            self._database.execute("BEGIN IMMEDIATE")
            try:
                self._catch_up()
                results = [
                    claims.append(self._database, entry)
                    if isinstance(entry, Claim)
                    else self._append(entry)
                    for entry in entries
                ]
                self._database.execute("COMMIT")
            except BaseException:
                if self._database.in_transaction:
                    self._database.execute("ROLLBACK")
                # What memory counted is not on disk; read everything anew.
                self._accounts.clear()
                self._last_read = 0
                raise
        except sqlite3.Error as error:
            failure = RefusalError(
                "ledger-unavailable", f"the ledger cannot be written ({error})"
            )
            return [failure] * len(entries)
        return results

    def _append(self, entry: Spend) -> RefusalError | None:
        account = self._accounts.setdefault(entry.node_id, _Account())
        try:
            account.check(entry)
        except RefusalError as refusal:
            return refusal
        cursor = self._database.execute(
            "INSERT INTO spend (node_id, run_id, cohort_id, kind, epsilon, precision, "
            "users, at) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (
                entry.node_id,
                entry.run_id,
                entry.cohort_id,
                entry.cost.kind,
                str(entry.cost.epsilon),
                entry.cost.precision,
                json.dumps(entry.users),
                time.time(),
            ),
        )
        account.add(entry.run_id, entry.cohort_id, entry.cost, list(entry.users))
        assert cursor.lastrowid is not None
        self._last_read = cursor.lastrowid
        return None


def _prepare(database: sqlite3.Connection) -> None:
    """Make the tables, or bring those of an older version up to this one."""
    database.execute("BEGIN IMMEDIATE")  # another process may be at it too
    try:
        (version,) = database.execute("PRAGMA user_version").fetchone()
        if version > _VERSION:
            raise sqlite3.DatabaseError(
                f"its schema is version {version}, this program knows {_VERSION}"
            )
        columns = {row[1] for row in database.execute("PRAGMA table_info (spend)")}
        if columns and "precision" not in columns:
            database.execute("ALTER TABLE spend ADD COLUMN precision INTEGER")
        for statement in (*_SCHEMA, *claims.SCHEMA):
            database.execute(statement)
        database.execute(f"PRAGMA user_version = {_VERSION}")
        database.execute("COMMIT")
    except BaseException:
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise


def _cost(kind: str, epsilon: str, precision: int | None) -> Cost:
    """Read a row's cost; rows of the first schema say less and count as their worst."""
    if precision is None:
        return Cost.at_most(kind, Fraction(epsilon) * (kind != "none"))
    return Cost(kind, Fraction(epsilon), precision)


def _tell(told: list[tuple[asyncio.Future[None], Exception | None]]) -> None:
    for waits, result in told:
        if waits.cancelled():
            continue  # written all the same: better a spend without an answer
        if result is None:
            waits.set_result(None)
        else:
            waits.set_exception(result)
