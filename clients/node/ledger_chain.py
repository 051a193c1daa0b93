"""A ledger's transactions, numbered and chained, held against its counter.

Each transaction adds a link: its number, and a head that no other history has. After
the commit the counter learns both; before the next one, and whenever the ledger is
opened, the counter's last mark must be in the chain. It is not if the ledger was rolled
back, emptied, recreated, or went on elsewhere from a copy.
"""

from __future__ import annotations

import secrets
import sqlite3

from wallflower.clients.node.rollback_counter import (
    HEAD_BYTES,
    ID_BYTES,
    Counter,
    CounterState,
    this_machine,
)
from wallflower.protocol.errors import RefusalError
from wallflower.protocol.identity.canonical import digest

SCHEMA = (
    """CREATE TABLE IF NOT EXISTS link (
        number INTEGER PRIMARY KEY,
        head   BLOB NOT NULL,
        spends INTEGER NOT NULL,
        claims INTEGER NOT NULL
    ) STRICT""",
    "CREATE TABLE IF NOT EXISTS origin (id BLOB NOT NULL) STRICT",
)
_CODE = "ledger-rolled-back"


class Chain:
    """The chain of one ledger in the ledger's own connection.

    Parameters
    ----------
    database : sqlite3.Connection
        The ledger's, with `SCHEMA` in it.
    counter : Counter
        Kept apart from it.
    """

    def __init__(self, database: sqlite3.Connection, counter: Counter) -> None:
        self._database = database
        self._counter = counter
        self._id = b""

    def begin(self) -> None:
        """Take up a ledger: a new one, or one from before counters, gets its mark.

        Called inside a transaction, so that of several processes one does it.
        """
        if not self._read_id():
            self._id = secrets.token_bytes(ID_BYTES)
            self._database.execute("INSERT INTO origin VALUES (?)", (self._id,))
            mark = self._counter.read()
            # At 0 nothing was ever written: a process died while it began.
            if mark is None or mark.number == 0:
                self._counter.write(self._mark(*self._last()), anew=True)
        self.check()

    def check(self) -> None:
        """Refuse to go on with a ledger that is not where its counter says."""
        mark = self._counter.read()  # first: the ledger may only be further
        where = f"its counter {self._counter.path}"
        if mark is None:
            raise RefusalError(_CODE, f"{where} is gone; was the ledger copied?")
        if mark.ledger != self._id:
            raise RefusalError(
                _CODE, f"{where} belongs to another one: was it replaced?"
            )
        machine = this_machine()
        if any(machine) and any(mark.machine) and machine != mark.machine:
            raise RefusalError(_CODE, f"{where} was kept on another machine")
        number, _ = self._last()
        if mark.number > number:
            raise RefusalError(
                _CODE, f"it ends at transaction {number}, {where} at {mark.number}"
            )
        if self._head(mark.number) != mark.head:
            raise RefusalError(
                _CODE, f"from transaction {mark.number} on it went on in another copy"
            )
        self._check_rows(number)

    def extend(self) -> CounterState:
        """Add a link for the transaction that is under way."""
        number, head = self._last()
        head = digest("wallflower/v1/link", head, secrets.token_bytes(HEAD_BYTES))
        self._database.execute(
            "INSERT INTO link VALUES (?, ?, ?, ?)", (number + 1, head, *self._rows())
        )
        return self._mark(number + 1, head)

    def committed(self, mark: CounterState) -> None:
        """Note a transaction that is on disk, before anything of it leaves."""
        self._counter.write(mark)

    def adopt(self) -> None:
        """Take the ledger as it is, here and now: its owner answers for it."""
        self._read_id()
        self._counter.write(self._mark(*self._last()), anew=True)

    def _read_id(self) -> bool:
        row = self._database.execute("SELECT id FROM origin").fetchone()
        self._id = b"" if row is None else bytes(row[0])
        return row is not None

    def _mark(self, number: int, head: bytes) -> CounterState:
        return CounterState(self._id, number, head, this_machine())

    def _last(self) -> tuple[int, bytes]:
        row = self._database.execute(
            "SELECT number, head FROM link ORDER BY number DESC LIMIT 1"
        ).fetchone()
        return (0, bytes(HEAD_BYTES)) if row is None else (row[0], bytes(row[1]))

    def _head(self, number: int) -> bytes:
        if number == 0:
            return bytes(HEAD_BYTES)
        row = self._database.execute(
            "SELECT head FROM link WHERE number = ?", (number,)
        ).fetchone()
        return b"" if row is None else bytes(row[0])

    def _rows(self) -> tuple[int, int]:
        spends, one_time_answers = self._database.execute(
            "SELECT (SELECT coalesce(max(number), 0) FROM spend), "
            "(SELECT coalesce(max(number), 0) FROM claim)"
        ).fetchone()
        return spends, one_time_answers

    def _check_rows(self, number: int) -> None:
        """Refuse tables that lost their last rows while the chain was kept."""
        row = self._database.execute(
            "SELECT spends, claims FROM link WHERE number = ?", (number,)
        ).fetchone()
        if row is not None and any(
            now < noted for now, noted in zip(self._rows(), row, strict=True)
        ):
            raise RefusalError(_CODE, "rows of its last transaction are missing")
