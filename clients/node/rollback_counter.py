"""How far a ledger has come, kept in a file apart from it.

Every transaction of a ledger has a number and a head of its own. The last one that was
written is noted here before its answers leave, so a ledger that is put back to an older
state, replaced, or continued in two copies does not fit its counter. The counter also
names the machine, where that has an identity: a folder copied to another machine does
not fit either.

Two slots, each with a checksum: what is written takes the place of the older mark, so a
torn write leaves the last whole one.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from wallflower.protocol.files.private import private_directory, private_file
from wallflower.protocol.identity.canonical import digest

HEAD_BYTES = 32
ID_BYTES = 16
_SLOT_BYTES = 8 + HEAD_BYTES + ID_BYTES + HEAD_BYTES + HEAD_BYTES
_MACHINE = Path("/etc/machine-id")


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


class Counter:
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
        """Give the last mark; None where there is no counter."""
        try:
            slots, empty = self._slots()
        except FileNotFoundError:
            return None
        mark = _latest(slots)
        if mark is None and not empty:
            raise OSError(f"counter {self.path} is damaged")
        return mark

    def write(self, mark: CounterState, *, anew: bool = False) -> None:
        """Note a place; it never goes back unless it begins `anew`."""
        private_directory(self.path.parent)
        private_file(self.path)
        with self._locked() as handle:
            slots: list[CounterState | None] = [None, None]
            if anew:
                os.ftruncate(handle, 0)
            else:
                slots, _ = self._slots()
            known = _latest(slots)
            if known is not None and known.number >= mark.number:
                return  # another process was faster
            # Never over the last whole mark: this write may tear, as the one before.
            free = 1 if known is not None and slots[0] == known else 0
            os.pwrite(handle, mark.to_bytes(), free * _SLOT_BYTES)
            if self._durable:
                os.fsync(handle)

    def _slots(self) -> tuple[list[CounterState | None], bool]:
        """Read both slots; say whether the file is empty."""
        content = self.path.read_bytes()
        slots = [
            CounterState.from_bytes(content[start : start + _SLOT_BYTES])
            for start in (0, _SLOT_BYTES)
        ]
        return slots, not content

    @contextmanager
    def _locked(self) -> Iterator[int]:
        handle = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield handle
        finally:
            os.close(handle)


def _latest(slots: list[CounterState | None]) -> CounterState | None:
    marks = [mark for mark in slots if mark is not None]
    return max(marks, key=lambda mark: mark.number, default=None)


def this_machine() -> bytes:
    """Name the machine without telling its id; zeros where it has none.

    Containers mostly have none, or all the same one: then nothing is bound.
    """
    try:
        known = _MACHINE.read_text().strip()
    except OSError:
        known = ""
    return digest("wallflower/v1/machine", known) if known else bytes(HEAD_BYTES)
