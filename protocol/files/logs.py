"""Structured logs: one JSON object a line, with run, batch and arm, without secrets.

What may be said is a list, not a habit: a field whose name is not in `FIELDS` is left
out and its name is reported, so that a reward, a share or a sum added to a log call by
mistake never reaches a disk. Bytes are shown by their length. Of an exception that is
not ours only type and code locations are kept, since its text may quote a value.
"""

from __future__ import annotations

import contextlib
import contextvars
import datetime
import json
import logging
import sys
import traceback
from collections.abc import Iterator, Mapping
from typing import IO, Any

from wallflower.protocol.errors import WallflowerError

# Numbers here count people, messages or time; none depends on what a user answered.
# fmt: off
FIELDS = frozenset((
    "run", "run_id", "batch", "arm", "cohort", "attempt", "node", "node_id",
    "address", "port", "again", "stage", "code", "detail", "error", "cohort_id",
    "request_id", "peer", "transport", "backend", "engine", "users", "invited",
    "answered", "lost", "losses", "survivors", "quorum", "nodes", "streams",
    "reconnects", "requests", "bytes", "seconds", "reason", "status", "version",
    "active", "state",
))
# fmt: on
_CONTEXT_FIELDS = ("run", "batch", "arm")
_context: contextvars.ContextVar[tuple[tuple[str, object], ...]]
_context = contextvars.ContextVar("wallflower-log-context", default=())
_LONGEST_TEXT = 300
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}


@contextlib.contextmanager
def log_context(**fields: object) -> Iterator[None]:
    """Add run, batch or arm to every line logged inside.

    Raises ValueError for any other name: the context is shared by all loggers.
    """
    unknown = set(fields) - set(_CONTEXT_FIELDS)
    if unknown:
        raise ValueError(f"log context may hold {_CONTEXT_FIELDS}, not {unknown}")
    token = _context.set((*_context.get(), *fields.items()))
    try:
        yield
    finally:
        _context.reset(token)


class JsonFormatter(logging.Formatter):
    """Write a record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """Render time, level, logger, event, the context and the allowed fields."""
        moment = datetime.datetime.fromtimestamp(record.created, datetime.UTC)
        line: dict[str, object] = {
            "time": moment.isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": vars(record).get("event") or _message(record),
            "message": _message(record),
            **dict(_context.get()),
        }
        withheld = []
        for name, value in vars(record).items():
            # What begins with "_" is a library's own mark (Ray's) and nobody's field.
            if name in _STANDARD or name == "event" or name.startswith("_"):
                continue
            if name in FIELDS:
                line[name] = _show_value(value)
            else:
                withheld.append(name)
        if withheld:
            line["withheld"] = sorted(withheld)
        if record.exc_info and record.exc_info[1] is not None:
            line["failure"] = describe(record.exc_info[1])
        return json.dumps(line, ensure_ascii=False, default=lambda v: type(v).__name__)


def describe(error: BaseException) -> dict[str, object]:
    """Say what failed and where, without quoting values we cannot vouch for."""
    frames = traceback.extract_tb(error.__traceback__)
    description: dict[str, object] = {
        "type": type(error).__name__,
        "where": [f"{frame.filename}:{frame.lineno}" for frame in frames[-5:]],
    }
    if isinstance(error, WallflowerError):
        description["text"] = _show_value(str(error))
    return description


def _message(record: logging.LogRecord) -> str:
    arguments: Any = record.args
    if isinstance(arguments, tuple):
        arguments = tuple(_show_argument(argument) for argument in arguments)
    elif isinstance(arguments, Mapping):
        arguments = {key: _show_argument(value) for key, value in arguments.items()}
    try:
        text = str(record.msg) % arguments if arguments else str(record.msg)
    except (TypeError, ValueError):
        text = str(record.msg)
    return str(_show_value(text))


def _show_argument(value: object) -> object:
    if isinstance(value, BaseException) and not isinstance(value, WallflowerError):
        return type(value).__name__
    return _show_value(value)


def _show_value(value: object) -> object:
    if isinstance(value, bytes | bytearray | memoryview):
        return f"<{len(value)} bytes>"
    if isinstance(value, str) and len(value) > _LONGEST_TEXT:
        return value[:_LONGEST_TEXT] + "…"
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        return {str(key): _show_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_show_value(item) for item in value]
    return str(value)[:_LONGEST_TEXT]


def install_json_logs(
    stream: IO[str] | None = None, level: int = logging.INFO
) -> logging.Handler:
    """Send all loggers of this process to a stream as JSON lines.

    Gives the handler, so that a test or a short-lived tool can take it off again.
    """
    handler = logging.StreamHandler(stream if stream is not None else sys.stderr)
    handler.setFormatter(JsonFormatter())
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(level)
    return handler


@contextlib.contextmanager
def installed_from(environment: Mapping[str, str]) -> Iterator[bool]:
    """Write JSON logs inside when ``WALLFLOWER_LOGS=json`` asks for them."""
    if environment.get("WALLFLOWER_LOGS") != "json":
        yield False
        return
    if any(isinstance(h.formatter, JsonFormatter) for h in logging.root.handlers):
        yield True  # a whole process writes them: each line once
        return
    handler = install_json_logs()
    try:
        yield True
    finally:
        logging.getLogger().removeHandler(handler)
