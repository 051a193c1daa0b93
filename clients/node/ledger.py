"""What every user has already spent: append-only, written before the answer leaves.

One SQLite file serves all nodes of a process (a phone has one node, a gateway or the
local engine many). A row is one node's users in one cohort. Spends that wait at the
same time share one transaction and one disk flush, and so do questions. Thousands of
nodes cost little more than one; no answer leaves before its row is on disk.

Other processes may append to the same file: each transaction first reads what they
wrote, so two processes of one node cannot both spend the same budget.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Generic, TypeAlias, TypeVar
from weakref import WeakSet

from wallflower.clients.node import ledger_tables as tables
from wallflower.clients.node.rollback_counter import RollbackCounter, TransactionChain
from wallflower.clients.node.spends import (
    Amount,
    NodeAccount,
    OneTimeAnswer,
    Price,
    Spend,
    Withdrawal,
    check_same_price,
    cohort_repeated,
)
from wallflower.protocol.accounting.account import NOTHING, Account
from wallflower.protocol.errors import (
    LedgerMismatchError,
    RefusalError,
    UnavailableError,
)
from wallflower.protocol.files.sqlite import Closing, open_database, transaction
from wallflower.protocol.refusals import RefusalCode

# What reading a row raises that nobody could have written.
_UNREADABLE = (ValueError, TypeError, ArithmeticError, RecursionError)
_BUSY_MS = 30_000  # how long a spend waits for other processes …
_READY_MS = 5_000  # … and whoever only asks whether it could be written

Work = TypeVar("Work")
Result = TypeVar("Result")
_Query: TypeAlias = Callable[[], Any]
_Entry: TypeAlias = Spend | OneTimeAnswer | Price | Withdrawal
_NO_SPENDS = NodeAccount()  # of a node that never answered; nothing is added to it


class LedgerThread(Generic[Work]):
    """The one thread that has a ledger's file open; works on all that waits together.

    Results go to each event loop in one go: thousands of nodes in a process cost two
    switches of thread between them, not two each.

    Parameters
    ----------
    do : Callable[[Sequence[Work]], Sequence[Any]]
        Runs in the thread; returns for each piece of work its result, or the exception
        to raise where the work was submitted.
    """

    def __init__(self, do: Callable[[Sequence[Work]], Sequence[Any]]) -> None:
        self._do = do
        self._mutex = threading.Lock()
        self._waiting: list[tuple[Work, asyncio.Future[Any]]] = []
        self._soon: WeakSet[asyncio.AbstractEventLoop] = WeakSet()
        self._closed = False
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="ledger")

    def call(self, function: Callable[[], Result]) -> Result:
        """Run a function there and block until it is done."""
        return self._thread.submit(function).result()

    def close(self, last: Callable[[], None]) -> None:
        """Do what waits, then `last`, and end the thread."""
        with self._mutex:
            self._closed = True
        self._thread.submit(self._drain)
        ended = self._thread.submit(last)
        self._thread.shutdown()
        ended.result()

    async def submit(self, work: Work) -> Any:
        """Return the result of a piece of work, or raise its exception."""
        loop = asyncio.get_running_loop()
        waits: asyncio.Future[Any] = loop.create_future()
        with self._mutex:
            if self._closed:
                raise RuntimeError("the ledger is closed")
            self._waiting.append((work, waits))
            first = loop not in self._soon
            if first:
                self._soon.add(loop)
        if first:  # whoever else submits in this turn of the loop comes along
            loop.call_soon(self._begin, loop)
        return await waits

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        with self._mutex:
            self._soon.discard(loop)
        with contextlib.suppress(RuntimeError):  # closed, and what waited is done
            self._thread.submit(self._drain)

    def _drain(self) -> None:
        with self._mutex:
            batch, self._waiting = self._waiting, []
        if not batch:
            return
        try:
            results = self._do([work for work, _ in batch])
        except Exception as error:  # nobody may wait for ever
            results = [error] * len(batch)
        by_loop: dict[
            asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Any], Any]]
        ] = {}
        for (_, waits), result in zip(batch, results, strict=True):
            by_loop.setdefault(waits.get_loop(), []).append((waits, result))
        for loop, finished in by_loop.items():
            if not loop.is_closed():
                loop.call_soon_threadsafe(_set_results, finished)


def _set_results(finished: list[tuple[asyncio.Future[Any], Any]]) -> None:
    for waits, result in finished:
        if waits.cancelled():
            continue  # done all the same: better a spend without an answer
        if isinstance(result, Exception):
            waits.set_exception(result)
        else:
            waits.set_result(result)


class Ledger(Closing):
    """The spends of all nodes of this process, in one file; a `NodeLedger`.

    Parameters
    ----------
    path : Path
        The file; made with mode 0600 if it is not there.
    counter : RollbackCounter, optional
        Kept apart from the file; with it a ledger that was rolled back, replaced or
        copied is refused.
    """

    def __init__(self, path: Path, counter: RollbackCounter | None = None) -> None:
        self._path = path
        self._counter = counter
        self._chain: TransactionChain | None = None
        self._accounts: dict[str, NodeAccount] = {}
        self._last_spend = 0
        self._answered: set[tuple[str, str, str]] = set()  # node, run, cohort
        self._last_answer = self._last_withdrawal = 0
        self._prices: dict[str, Amount] = {}  # by run
        self._unavailable_until = 0.0  # till when it need not be tried again
        self._caught_up = self._probed = False  # by one of those who wait together
        self._thread: LedgerThread[_Entry | _Query] = LedgerThread(self._do)
        try:
            self._database = self._thread.call(self._open)
        except BaseException:
            self._thread.close(lambda: None)
            raise

    def close(self) -> None:
        """Write what waits, close the file, end the thread."""
        self._thread.close(self._database.close)

    async def record_answer(self, answer: OneTimeAnswer) -> None:
        """Write down an answer that is given once; returns when it is on disk.

        Raises RefusalError if another answer was given before, or the ledger cannot be
        written: then nothing may leave the node.
        """
        await self._thread.submit(answer)

    async def withdraw(self, entry: Withdrawal) -> None:
        """Write down that a user withdrew; every process knows it from then on.

        Raises RefusalError if it cannot be written: then nothing has changed.
        """
        await self._thread.submit(entry)

    async def withdrawn(self, node_id: str) -> frozenset[str]:
        """Return the users who withdrew; if the file cannot be read, as last known.

        A sum is under way when this is asked: a file that fails now must not tell
        anything by an answer that does not come.
        """

        def find_withdrawn() -> frozenset[str]:
            with contextlib.suppress(OSError, sqlite3.Error):
                self._refresh()
            return frozenset(self._accounts.get(node_id, _NO_SPENDS).withdrawn)

        found: frozenset[str] = await self._thread.submit(find_withdrawn)
        return found

    async def has_connected(self, node_id: str, run_id: str) -> bool:
        """Return whether any process ever connected to a gRPC server for a run."""
        found: bool = await self._thread.submit(
            lambda: tables.has_connected(self._database, node_id, run_id)
        )
        return found

    async def spend(self, entry: Spend) -> None:
        """Write a spend; returns when it is on disk.

        Raises RefusalError if the cohort was answered before, a user took part too
        often, the budget does not suffice (`BudgetError`), or the ledger cannot be
        written: then nothing may leave the node.
        """
        await self._thread.submit(entry)

    async def check_writable(self) -> None:
        """Raise RefusalError if nothing could be written now; wait only briefly.

        Called before people are invited: a ledger that is locked, full or rolled back
        must not cost them their one turn.
        """
        await self._thread.submit(self._probe)

    async def prepare(self, entry: Spend) -> Mapping[str, str]:
        """Return the users who could not make a spend now, each with its code.

        Raises RefusalError if nothing could be written, the cohort was answered
        before, or the price is not the run's. Nothing is written but a run's price.
        """
        known = self._prices.get(entry.run_id)
        if known is None:
            await self.check_writable()  # a spend may wait for long, a question may not
            await self._thread.submit(entry.price)
        elif refusal := check_same_price(known, entry.price):
            raise refusal

        def find_unable() -> dict[str, str]:
            self._probe()
            if self._was_answered(entry.node_id, entry.run_id, entry.cohort_id):
                raise cohort_repeated(entry.cohort_id)
            return self._accounts.get(entry.node_id, _NO_SPENDS).find_unable(entry)

        found: dict[str, str] = await self._thread.submit(find_unable)
        return found

    async def has_answered(self, node_id: str, run_id: str, cohort_id: str) -> bool:
        """Return whether a cohort was answered before, in this process or another."""
        found: bool = await self._thread.submit(
            lambda: self._was_answered(node_id, run_id, cohort_id)
        )
        return found

    async def latest_cohorts(
        self, node_id: str, run_id: str, most: int
    ) -> Sequence[str]:
        """Return the cohorts of a run that a node answered last."""

        def find_cohorts() -> list[str]:
            self._refresh()
            account = self._accounts.get(node_id, _NO_SPENDS)
            return account.latest_cohorts(run_id, most)

        found: list[str] = await self._thread.submit(find_cohorts)
        return found

    async def read_account(self, node_id: str, user: str) -> Account:
        """Return all that a user has spent so far."""

        def find_account() -> Account:
            self._refresh()
            return self._accounts.get(node_id, _NO_SPENDS).spent.get(user, NOTHING)

        account: Account = await self._thread.submit(find_account)
        return account

    # --- in the ledger's own thread ----------------------------------------------

    def _open(self) -> sqlite3.Connection:
        try:
            database = open_database(self._path, wait_s=_BUSY_MS / 1000)
        except (OSError, sqlite3.Error) as error:
            raise self._opening_error(error) from None
        try:
            if self._counter is not None:
                self._chain = TransactionChain(database, self._counter)
            with transaction(database):  # another process may be at it too
                tables.create_tables(database)
                if self._chain is not None:
                    self._chain.begin()
            self._database = database
            self._catch_up()
        except (OSError, RefusalError, sqlite3.Error, *_UNREADABLE) as error:
            database.close()
            raise self._opening_error(error) from None
        return database

    def _opening_error(self, error: Exception) -> UnavailableError:
        refused = isinstance(error, RefusalError)
        kind = LedgerMismatchError if refused else UnavailableError
        return kind(
            f"ledger {self._path} cannot be opened ({error}); without it nothing may "
            "be answered"
        )

    def _probe(self) -> None:
        """Check that a spend could be written; many who ask at once wait once."""
        if self._probed:
            return
        if time.monotonic() < self._unavailable_until:
            raise RefusalError(
                RefusalCode.LEDGER_UNAVAILABLE, f"ledger {self._path} cannot be written"
            )
        try:
            with tables.brief_lock(self._database, _READY_MS, _BUSY_MS):
                if self._chain is not None:
                    self._chain.check()
            self._probed = True
        except (OSError, sqlite3.Error) as error:
            self._unavailable_until = time.monotonic() + 1
            raise RefusalError(
                RefusalCode.LEDGER_UNAVAILABLE,
                f"ledger {self._path} cannot be written ({error})",
            ) from None

    def _was_answered(self, node_id: str, run_id: str, cohort_id: str) -> bool:
        self._refresh()
        account = self._accounts.get(node_id, _NO_SPENDS)
        return (run_id, cohort_id) in account.cohorts or (
            (node_id, run_id, cohort_id) in self._answered
        )

    def _refresh(self) -> None:
        """Read what other processes wrote; many who ask at once read once."""
        if not self._caught_up:
            self._catch_up()
            self._caught_up = True

    def _catch_up(self) -> None:
        self._last_spend = tables.add_spends_after(
            self._database, self._last_spend, self._accounts
        )
        self._last_answer = tables.add_answers_after(
            self._database, self._last_answer, self._answered
        )
        self._last_withdrawal = tables.add_withdrawals_after(
            self._database, self._last_withdrawal, self._accounts
        )

    def _do(self, works: Sequence[_Entry | _Query]) -> list[Any]:
        """Answer and write all that waits; return each result or exception."""
        self._caught_up = self._probed = False
        results = [
            None if isinstance(work, _Entry) else _run_query(work) for work in works
        ]
        entries = [work for work in works if isinstance(work, _Entry)]
        if entries:
            written = iter(self._write(entries))
            for place, work in enumerate(works):
                if isinstance(work, _Entry):
                    results[place] = next(written)
        return results

    def _write(self, entries: Sequence[_Entry]) -> list[Exception | None]:
        """Write one transaction; return for each entry None or why it is refused."""
        results: list[Exception | None]
        try:
            try:
                with transaction(self._database):
                    if self._chain is not None:
                        self._chain.check()
                    self._catch_up()
                    rows: list[tables.SpendRow] = []
                    results = [self._enter(entry, rows) for entry in entries]
                    # Nobody else writes meanwhile: the last number is of these rows.
                    self._last_spend = tables.insert_spends(self._database, rows)
                    state = None if self._chain is None else self._chain.extend()
                if self._chain is not None and state is not None:
                    self._chain.note_commit(state)
            except BaseException:
                # What memory counted is not on disk; read everything anew.
                self._accounts.clear()
                self._answered.clear()
                self._prices.clear()
                self._last_spend = self._last_answer = self._last_withdrawal = 0
                raise
        except RefusalError as refusal:
            return [refusal] * len(entries)
        except Exception as error:
            return [_writing_error(error)] * len(entries)
        return results

    def _enter(self, entry: _Entry, rows: list[tables.SpendRow]) -> RefusalError | None:
        """Enter one; what is wrong with it alone is refused to it alone."""
        try:
            if isinstance(entry, OneTimeAnswer):
                return tables.append_answer(self._database, entry)
            if isinstance(entry, Price):
                refusal = tables.append_price(self._database, entry)
                if refusal is None:
                    self._prices[entry.run_id] = entry.amount
                return refusal
            if isinstance(entry, Withdrawal):
                tables.append_withdrawal(self._database, entry)
                return None
            return self._enter_spend(entry, rows)
        except (OSError, sqlite3.Error):
            raise  # of the file, and so of the whole transaction
        except Exception as error:
            return _writing_error(error)

    def _enter_spend(
        self, entry: Spend, rows: list[tables.SpendRow]
    ) -> RefusalError | None:
        """Take a spend into account and leave its row to be written, or refuse it."""
        account = self._accounts.setdefault(entry.node_id, NodeAccount())
        try:
            account.check(entry)
        except RefusalError as refusal:
            return refusal
        rows.append(tables.spend_row(entry))
        account.add(entry.run_id, entry.cohort_id, entry.cost, list(entry.users))
        return None


def _writing_error(error: Exception) -> RefusalError:
    return RefusalError(
        RefusalCode.LEDGER_UNAVAILABLE, f"the ledger cannot be written ({error})"
    )


def _run_query(query: _Query) -> Any:
    """Return what a query finds, or the exception that it ends with."""
    try:
        return query()
    except Exception as error:
        return error
