"""Events from one process to another: a file of JSON lines, written and followed.

Under Flower the orchestrator lives in the ServerApp's process, the live view in the
operator's. The file lies in the run directory and stays as a record of the run.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import hashlib
import json
import typing
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping
from pathlib import Path
from types import UnionType
from typing import Any

from wallflower.protocol.errors import UnavailableError, command_on
from wallflower.protocol.files.private import private_file
from wallflower.protocol.files.sqlite import Closing
from wallflower.strategy.store import events
from wallflower.strategy.store.events import Event

FILE_NAME = "events.jsonl"
_CLASSES: Mapping[str, type[Any]] = {
    cls.__name__: cls for cls in typing.get_args(events.Event)
}
# What reading a line raises that is cut, of another shape, or nested too deeply.
_NO_EVENT = (ValueError, AttributeError, RecursionError)
_SUM_FIELD, _END = ',"sum":"', '"}'
_SHORTEST_PAUSE_S, _LONGEST_PAUSE_S = 0.02, 0.5


class EventLog(Closing):
    """Appends events to a run's file; each line is complete before the next starts."""

    def __init__(self, run_dir: Path) -> None:
        self._path = run_dir / FILE_NAME
        try:
            private_file(self._path)
            self._file = self._path.open("a", encoding="utf-8", buffering=1)
            if not _whole(self._path):
                self._file.write("\n")
        except OSError as error:
            raise self._cannot(error) from None

    def close(self) -> None:
        """End the file."""
        with contextlib.suppress(OSError):  # a full disk was said by `listen`
            self._file.close()

    async def listen(self, event: Event) -> None:
        """Write one event (an `Orchestrator`'s listener)."""
        try:
            self._file.write(encode(event) + "\n")
        except OSError as error:
            raise self._cannot(error) from None

    def _cannot(self, error: OSError) -> UnavailableError:
        return UnavailableError(
            f"{self._path} cannot be written ({error.strerror}); make room, then "
            f"`{command_on('resume', self._path.parent)}`"
        )


async def follow(
    run_dir: Path,
    over: asyncio.Event,
    *,
    offset: int = 0,
    longest_pause_s: float = _LONGEST_PAUSE_S,
) -> AsyncGenerator[Event, None]:
    """Yield events as they are written, from `offset` on, until `over` is set.

    What was written before `over` is still yielded. It is looked for often while events
    come, and after `longest_pause_s` at the latest. Lines that a crash cut short, or
    that another version wrote, are no events.
    """
    path, rest, pause_s = run_dir / FILE_NAME, b"", _SHORTEST_PAUSE_S
    while True:
        last = over.is_set()
        fresh = _read_from(path, offset)
        offset += len(fresh)
        *lines, rest = (rest + fresh).split(b"\n")
        for event in _events(lines):
            yield event
        if last:
            return
        pause_s = _SHORTEST_PAUSE_S if lines else min(pause_s * 1.5, longest_pause_s)
        try:
            async with asyncio.timeout(pause_s):
                await over.wait()
        except TimeoutError:
            continue


def so_far(run_dir: Path) -> tuple[list[Event], int]:
    """Return the events written so far, and where to `follow` from."""
    whole, newline, _ = _read_from(run_dir / FILE_NAME, 0).rpartition(b"\n")
    return list(_events(whole.split(b"\n"))), len(whole) + len(newline)


def read_heads(run_dir: Path, up_to: int | None = None) -> tuple[list[str], int]:
    """Read the heads that the events tell, oldest first; count the damaged lines.

    Those are lines that a crash cut short or that were changed since: they tell
    nothing. Of a file that grows, the first `up_to` bytes count, and its last line only
    when it has its end.
    """
    heads, damaged = list[str](), 0
    *lines, _ = _read_from(run_dir / FILE_NAME, 0)[:up_to].split(b"\n")
    for line in lines:
        try:
            head = _fields(line.decode()).get("head")
        except _NO_EVENT:
            damaged += bool(line)
        else:
            heads += [str(head)] if head else []
    return heads, damaged


def size(run_dir: Path) -> int:
    """Return how long the file is now, for following only what comes later."""
    path = run_dir / FILE_NAME
    return path.stat().st_size if path.exists() else 0


def written_at(run_dir: Path) -> float | None:
    """Return the Unix seconds of the last event, or None before the first."""
    path = run_dir / FILE_NAME
    return path.stat().st_mtime if path.exists() else None


def encode(event: Event) -> str:
    """Write an event as one line of JSON, with a checksum as its last field."""
    text = json.dumps(
        {"event": type(event).__name__, **dataclasses.asdict(event)},
        separators=(",", ":"),
    )
    return f"{text[:-1]}{_SUM_FIELD}{_checksum(text)}{_END}"


def decode(line: str) -> Event:
    """Read what `encode` wrote."""
    fields = _fields(line)
    event: Event = _build(_CLASSES[fields.pop("event")], fields)
    return event


def _fields(line: str) -> dict[str, Any]:
    """Read a line; raise ValueError for one that is not as it was written."""
    text, field, rest = line.rpartition(_SUM_FIELD)
    if not field or rest != f"{_checksum(text + '}')}{_END}":
        raise ValueError("the line was cut or changed")
    fields: dict[str, Any] = json.loads(text + "}")
    return fields


def _checksum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _events(lines: Iterable[bytes]) -> Iterator[Event]:
    for line in lines:
        try:
            event = decode(line.decode())
        except (*_NO_EVENT, KeyError, TypeError):
            continue
        yield event


def _whole(path: Path) -> bool:
    """Return whether the last line has its end; a crash may have cut it short."""
    with path.open("rb") as file:
        length = file.seek(0, 2)
        file.seek(max(0, length - 1))
        return file.read() in (b"", b"\n")


def _read_from(path: Path, offset: int) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(offset)
            return file.read()
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise UnavailableError(
            f"{path} cannot be read ({error.strerror}); put back the file of the run"
        ) from None


def _build(hint: Any, value: Any) -> Any:
    """Turn JSON back into dataclasses and tuples, as the annotations say."""
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        hints = typing.get_type_hints(hint)
        return hint(**{name: _build(hints[name], item) for name, item in value.items()})
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
        return tuple(_build(arguments[0], item) for item in value)
    if origin is tuple:
        return tuple(
            _build(inner, item) for inner, item in zip(arguments, value, strict=True)
        )
    if origin in (typing.Union, UnionType) and value is not None:
        inner = [argument for argument in arguments if argument is not type(None)]
        return _build(inner[0], value)
    return value
