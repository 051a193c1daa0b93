"""What ports have in common: asking, and work that several may wait for.

A request is worked on once, whoever asks it and how often; who asks the same while it
is under way waits along, who asks later gets what is stored, and what nobody waits for
any more is never begun again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from wallflower.protocol.messages.answers import (
    ABANDONED,
    MemoryAnswers,
    Progress,
    StoredAnswer,
)
from wallflower.protocol.messages.port import Answer, NodeId, Request

Key = tuple[NodeId, str]
Work = TypeVar("Work")

# A run repeats no request of a round that is over, however many rounds it has.
MOST_ANSWER_BYTES = 4 * 2**20
_MOST_MARKS = 10_000
_POSTED_AT_ONCE = 512


class Inbox:
    """Takes at most one answer per asked request, until closed.

    Deliveries that were not asked for, come twice or come late are refused, so an
    adapter may hand over whatever the network gives it.
    """

    def __init__(self, requests: Sequence[Request]) -> None:
        self.requests: dict[Key, Request] = {
            (request.node_id, request.request_id): request for request in requests
        }
        self._awaited: set[Key] = set(self.requests)
        self._arrived: deque[Answer] = deque()
        self._more = asyncio.Event()

    @property
    def awaited(self) -> frozenset[Key]:
        """The requests without an answer so far."""
        return frozenset(self._awaited)

    def deliver(self, answer: Answer) -> bool:
        """Take an answer; False means it was refused."""
        key = (answer.node_id, answer.request_id)
        if key not in self._awaited:
            return False
        self._awaited.discard(key)
        self._arrived.append(answer)
        self._more.set()
        return True

    def refuse(self, request: Request, failure: str) -> None:
        """Say that one of the requests has no answer, and why."""
        self.deliver(Answer(request.node_id, request.request_id, failure=failure))

    async def next_before(self, deadline: float) -> Answer | None:
        """Return the next answer, or None at the end.

        The end is the deadline (in the loop's time), or that nothing is awaited and
        all was given. What had arrived by the deadline is still given.
        """
        if not self._arrived and self._awaited:
            self._more.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(deadline):
                    await self._more.wait()
        return self._arrived.popleft() if self._arrived else None

    def close(self) -> frozenset[Key]:
        """Refuse everything from now on; give the requests that are abandoned."""
        abandoned = frozenset(self._awaited)
        self._awaited.clear()
        return abandoned


async def ask_all(
    requests: Sequence[Request],
    timeout_s: float,
    post: Callable[[Request, Inbox, float], None],
    abandon: Callable[[Inbox], Awaitable[None]],
) -> AsyncGenerator[Answer, None]:
    """Post every request, yield answers as they come (see `NodeTransport.ask`).

    `post` is told who waits for the answer and till when, in the loop's time; `abandon`
    closes the inbox and gives up what only it was waiting for.
    """
    deadline = asyncio.get_running_loop().time() + timeout_s
    inbox = Inbox(requests)
    try:
        for number, request in enumerate(inbox.requests.values(), start=1):
            post(request, inbox, deadline)
            if number % _POSTED_AT_ONCE == 0:  # nodes are heard meanwhile
                await asyncio.sleep(0)
        while (answer := await inbox.next_before(deadline)) is not None:
            yield answer
    finally:
        await abandon(inbox)


@dataclass(slots=True)
class _UnderWay(Generic[Work]):
    name: str
    work: Work
    waiting: list[Inbox] = field(default_factory=list)


class PendingRequests(Generic[Work]):
    """The requests of a transport under way, and the answers of those that ended."""

    def __init__(self, most_answer_bytes: int = MOST_ANSWER_BYTES) -> None:
        self._answers = MemoryAnswers(
            most_bytes=most_answer_bytes, most_marks=_MOST_MARKS
        )
        self._under_way: dict[Key, _UnderWay[Work]] = {}

    def join(
        self, request: Request, inbox: Inbox, start: Callable[[], Work]
    ) -> Work | None:
        """Wait for a request, started now if it is new; None if it has its answer."""
        key = (request.node_id, request.request_id)
        name = _name(key)
        known = self._answers.begin(name, request.body)
        if isinstance(known, StoredAnswer):
            inbox.deliver(Answer(*key, known.body, known.failure))
            return None
        if known is Progress.NEW:
            under_way = self._under_way[key] = _UnderWay(name, start())
        else:
            under_way = self._under_way[key]
        under_way.waiting.append(inbox)
        return under_way.work

    def settle(self, key: Key, answer: StoredAnswer) -> None:
        """Store an answer, unless there is one, and tell everyone who waits."""
        under_way = self._under_way.pop(key, None)
        if under_way is None:
            self._answers.finish(_name(key), answer)
            return
        stored = self._answers.finish(under_way.name, answer)
        reply = Answer(*key, stored.body, stored.failure)
        for inbox in under_way.waiting:
            inbox.deliver(reply)

    def abandon(self, key: Key) -> None:
        """Have a request never be worked on again; nobody hears of it."""
        self._answers.finish(_name(key), StoredAnswer(failure=ABANDONED))
        self._under_way.pop(key, None)

    def leave(self, inbox: Inbox) -> list[tuple[Key, Work]]:
        """Close an inbox; give the work under way that nobody waits for any more."""
        left = []
        for key in inbox.close():
            under_way = self._under_way.get(key)
            if under_way is not None and inbox in under_way.waiting:
                under_way.waiting.remove(inbox)
                if not under_way.waiting:
                    left.append((key, under_way.work))
        return left


def _name(key: Key) -> str:
    node_id, request_id = key
    return f"{len(node_id)}:{node_id}{request_id}"
