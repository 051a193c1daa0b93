"""How far a ledger has come, kept in a file apart from it.

Every transaction of a ledger has a number and a head of its own. The last one that was
written is noted here before its answers leave, so a ledger that is put back to an older
state, replaced, or continued in two copies does not fit its counter. The counter also
names the machine, where that has an identity: a folder copied to another machine does
not fit either.

Two slots, each with a checksum: a write replaces the older state, so a torn write
leaves the last whole one.

In the ledger's file each transaction adds a link: its number, and a head that no other
history has. After the commit the counter learns both. Before the next one, and whenever
the ledger is opened, the counter's last state must be in the chain. It is not if the
ledger was rolled back, emptied, recreated, or went on elsewhere from a copy.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from wallflower.protocol.errors import RefusalError
from wallflower.protocol.files.private import private_directory, private_file
from wallflower.protocol.identity.canonical import digest
from wallflower.protocol.refusals import RefusalCode

HEAD_BYTES = 32
ID_BYTES = 16
_SLOT_BYTES = 8 + HEAD_BYTES + ID_BYTES + HEAD_BYTES + HEAD_BYTES
_MACHINE = Path("/etc/machine-id")
SCHEMA = (
    """CREATE TABLE IF NOT EXISTS link (
        number INTEGER PRIMARY KEY,
        head   BLOB NOT NULL,
        spends INTEGER NOT NULL,
        answers INTEGER NOT NULL
    ) STRICT""",
    "CREATE TABLE IF NOT EXISTS origin (id BLOB NOT NULL) STRICT",
)


@dataclass(frozen=True, slots=True)
class CounterState:
    """A ledger's place: its id, its last transaction, and the machine it is on."""

    ledger: bytes
    number: int
    head: bytes
    machine: bytes

    def to_bytes(self) -> bytes:
        """Write a slot."""
        body = self.number.to_bytes(8, "big") + self.head + self.ledger + self.machine
        return body + digest("wallflower/v1/counter", body)

    @classmethod
    def from_bytes(cls, slot: bytes) -> CounterState | None:
        """Read a slot; None for one that is empty or torn."""
        body, checksum = slot[:-HEAD_BYTES], slot[-HEAD_BYTES:]
        if (
            len(slot) != _SLOT_BYTES
            or digest("wallflower/v1/counter", body) != checksum
        ):
            return None
        cuts = (8, 8 + HEAD_BYTES, 8 + HEAD_BYTES + ID_BYTES)
        number = int.from_bytes(body[: cuts[0]], "big")
        return cls(
            body[cuts[1] : cuts[2]], number, body[cuts[0] : cuts[1]], body[cuts[2] :]
        )


class RollbackCounter:
    """The counter of one ledger; several processes may write it.

    Parameters
    ----------
    path : Path
        The file; best on a volume that is not restored together with the ledger's.
    durable : bool
        Flush to the disk. Without it a power cut may leave the counter behind its
        ledger, which is no reason for alarm and hides what happened in between.
    """

    def __init__(self, path: Path, *, durable: bool = True) -> None:
        self.path = path
        self._durable = durable

    def read(self) -> CounterState | None:
        """Return the last state; None where there is no counter."""
        try:
            slots, empty = self._slots()
        except FileNotFoundError:
            return None
        state = _latest(slots)
        if state is None and not empty:
            raise OSError(f"counter {self.path} is damaged")
        return state

    def write(self, state: CounterState, *, anew: bool = False) -> None:
        """Note a place; it never goes back unless it begins `anew`."""
        private_directory(self.path.parent)
        private_file(self.path)
        with self._lock_file() as handle:
            slots: list[CounterState | None] = [None, None]
            if anew:
                os.ftruncate(handle, 0)
            else:
                slots, _ = self._slots()
            known = _latest(slots)
            if known is not None and known.number >= state.number:
                return  # another process was faster
            # Never over the last whole state: this write may tear, as the one before.
            free = 1 if known is not None and slots[0] == known else 0
            os.pwrite(handle, state.to_bytes(), free * _SLOT_BYTES)
            if self._durable:
                os.fsync(handle)

    def _slots(self) -> tuple[list[CounterState | None], bool]:
        """Return both slots, and whether the file is empty."""
        content = self.path.read_bytes()
        slots = [
            CounterState.from_bytes(content[start : start + _SLOT_BYTES])
            for start in (0, _SLOT_BYTES)
        ]
        return slots, not content

    @contextmanager
    def _lock_file(self) -> Iterator[int]:
        handle = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield handle
        finally:
            os.close(handle)


def _latest(slots: list[CounterState | None]) -> CounterState | None:
    states = [state for state in slots if state is not None]
    return max(states, key=lambda state: state.number, default=None)


def this_machine() -> bytes:
    """Return a digest of the machine's id; zeros where it has none.

    Containers mostly have none, or all the same one: then nothing is bound.
    """
    try:
        known = _MACHINE.read_text().strip()
    except OSError:
        known = ""
    return digest("wallflower/v1/machine", known) if known else bytes(HEAD_BYTES)


class TransactionChain:
    """The chain of one ledger in the ledger's own connection.

    Parameters
    ----------
    database : sqlite3.Connection
        The ledger's, with `SCHEMA` in it.
    counter : RollbackCounter
        Kept apart from it.
    """

    def __init__(self, database: sqlite3.Connection, counter: RollbackCounter) -> None:
        self._database = database
        self._counter = counter
        self._id = b""

    def begin(self) -> None:
        """Take up a ledger: a new one, or one from before counters, gets its counter.

        Called inside a transaction, so that of several processes one does it.
        """
        if not self._read_id():
            self._id = secrets.token_bytes(ID_BYTES)
            self._database.execute("INSERT INTO origin VALUES (?)", (self._id,))
            state = self._counter.read()
            # At 0 nothing was ever written: a process died while it began.
            if state is None or state.number == 0:
                self._counter.write(self._state(*self._last()), anew=True)
        self.check()

    def check(self) -> None:
        """Refuse to go on with a ledger that is not where its counter says."""
        state = self._counter.read()  # first: the ledger may only be further
        where = f"its counter {self._counter.path}"
        if state is None:
            raise RefusalError(
                RefusalCode.LEDGER_ROLLED_BACK,
                f"{where} is gone; was the ledger copied?",
            )
        if state.ledger != self._id:
            raise RefusalError(
                RefusalCode.LEDGER_ROLLED_BACK,
                f"{where} belongs to another one: was it replaced?",
            )
        machine = this_machine()
        if any(machine) and any(state.machine) and machine != state.machine:
            raise RefusalError(
                RefusalCode.LEDGER_ROLLED_BACK, f"{where} was kept on another machine"
            )
        number, _ = self._last()
        if state.number > number:
            raise RefusalError(
                RefusalCode.LEDGER_ROLLED_BACK,
                f"it ends at transaction {number}, {where} at {state.number}",
            )
        if self._head(state.number) != state.head:
            raise RefusalError(
                RefusalCode.LEDGER_ROLLED_BACK,
                f"from transaction {state.number} on it went on in another copy",
            )
        self._check_rows(number)

    def extend(self) -> CounterState:
        """Add a link for the transaction that is under way."""
        number, head = self._last()
        head = digest("wallflower/v1/link", head, secrets.token_bytes(HEAD_BYTES))
        self._database.execute(
            "INSERT INTO link VALUES (?, ?, ?, ?)", (number + 1, head, *self._rows())
        )
        return self._state(number + 1, head)

    def note_commit(self, state: CounterState) -> None:
        """Note a transaction that is on disk, before anything of it leaves."""
        self._counter.write(state)

    def adopt(self) -> None:
        """Take the ledger as it is, here and now: its owner answers for it."""
        self._read_id()
        self._counter.write(self._state(*self._last()), anew=True)

    def _read_id(self) -> bool:
        row = self._database.execute("SELECT id FROM origin").fetchone()
        self._id = b"" if row is None else bytes(row[0])
        return row is not None

    def _state(self, number: int, head: bytes) -> CounterState:
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
        spends, answers = self._database.execute(
            "SELECT (SELECT coalesce(max(number), 0) FROM spend), "
            "(SELECT coalesce(max(number), 0) FROM answer)"
        ).fetchone()
        return spends, answers

    def _check_rows(self, number: int) -> None:
        """Refuse tables that lost their last rows while the chain was kept."""
        row = self._database.execute(
            "SELECT spends, answers FROM link WHERE number = ?", (number,)
        ).fetchone()
        if row is not None and any(
            now < noted for now, noted in zip(self._rows(), row, strict=True)
        ):
            raise RefusalError(
                RefusalCode.LEDGER_ROLLED_BACK,
                "rows of its last transaction are missing",
            )
