"""A node's memory of what it answered: the same request id, the same answer.

A repeated request (a reconnect, a server restarted on its spool, a duplicate on the
way) must never make a node act twice. Adapters ask the store first; only a request
that was never seen reaches the node's handler.
"""

from __future__ import annotations

import hashlib
import logging
from collections import OrderedDict
from enum import Enum
from typing import NamedTuple, Protocol

from wallflower.protocol.messages.port import NodeHandler

_log = logging.getLogger(__name__)
# Failures an answer store gives by itself; all are final for their request id.
ABANDONED = "abandoned"  # the server stopped waiting before there was an answer
FORGOTTEN = "answer-forgotten"  # answered long ago; the body is no longer kept
REUSED = "request-id-reused"  # same id, another body: never acted upon


class Progress(Enum):
    """What a store knows of a request that has no answer."""

    NEW = "new"
    RUNNING = "running"


class StoredAnswer(NamedTuple):
    """What goes back for a request id, now and ever after."""

    body: bytes = b""
    failure: str | None = None

    def __repr__(self) -> str:
        """Show the size only: the body may carry shares."""
        return f"StoredAnswer(bytes={len(self.body)}, failure={self.failure!r})"


async def answered(handler: NodeHandler, body: bytes, **who: str) -> StoredAnswer:
    """Let a node work on a request; `who` is for the log.

    The text of a handler's error may quote what the handler was given: it goes nowhere.
    """
    try:
        return StoredAnswer(await handler.handle(body))
    except Exception as error:
        _log.warning(
            "node handler failed",
            extra={"event": "handler-failed", "error": type(error).__name__, **who},
        )
        return StoredAnswer(failure="node-failed")


class AnswerStore(Protocol):
    """Where answers are kept; in memory, or on disk to survive a restart."""

    def begin(self, key: str, body: bytes) -> Progress | StoredAnswer:
        """Say whether to work on a request, wait for it, or send what is stored."""
        ...

    def finish(self, key: str, answer: StoredAnswer) -> StoredAnswer:
        """Store the answer of a begun request; the first one stays."""
        ...


def digest(key: str, body: bytes = b"") -> bytes:
    """Sixteen bytes that stand for a request."""
    head = key.encode()
    return hashlib.blake2b(
        len(head).to_bytes(4, "big") + head + body, digest_size=16
    ).digest()


class MemoryAnswers:
    """Answers in memory, bounded in bytes; the oldest bodies go first.

    An answer whose body was dropped leaves a mark of sixteen bytes, so that its id is
    still refused. Marks are bounded too; what is older than `most_marks` requests is
    refused by the session itself, which answers each cohort once.
    """

    def __init__(
        self, *, most_bytes: int = 64 * 2**20, most_marks: int = 200_000
    ) -> None:
        self._most_bytes = most_bytes
        self._most_marks = most_marks
        self._bytes = 0
        self._running: dict[str, bytes] = {}
        self._done: OrderedDict[str, tuple[bytes, StoredAnswer]] = OrderedDict()
        self._marks: OrderedDict[bytes, None] = OrderedDict()

    def begin(self, key: str, body: bytes) -> Progress | StoredAnswer:
        """Say whether to work on a request, wait for it, or send what is stored."""
        request = digest(key, body)
        if key in self._running:
            same = self._running[key] == request
            return Progress.RUNNING if same else StoredAnswer(failure=REUSED)
        if key in self._done:
            known, answer = self._done[key]
            return answer if known == request else StoredAnswer(failure=REUSED)
        if self._marks and digest(key) in self._marks:
            return StoredAnswer(failure=FORGOTTEN)
        self._running[key] = request
        return Progress.NEW

    def finish(self, key: str, answer: StoredAnswer) -> StoredAnswer:
        """Store the answer of a begun request; the first one stays."""
        if key in self._done:
            return self._done[key][1]
        request = self._running.pop(key, None)
        if request is None:  # done before, and its body already dropped
            return StoredAnswer(failure=FORGOTTEN)
        self._done[key] = request, answer
        self._bytes += self._cost(key, answer)
        while self._bytes > self._most_bytes:
            oldest, (_, dropped) = self._done.popitem(last=False)
            self._bytes -= self._cost(oldest, dropped)
            self._marks[digest(oldest)] = None
        while len(self._marks) > self._most_marks:
            self._marks.popitem(last=False)
        return answer

    @staticmethod
    def _cost(key: str, answer: StoredAnswer) -> int:
        # 512: what the entry itself takes in CPython, measured roughly.
        return len(key) + len(answer.body) + 512
