"""Flower's Grid as a NodePort.

Used where the work itself travels as Flower messages: Flower's simulation, and sites
where only Flower's port may be open. In a deployment each message costs a process start
on the node, so there the desk carries the work and this port sends one *attend* each
(`strategy.summons`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import Self

from flwr.serverapp import Grid

from wallflower.protocol.errors import UnavailableError
from wallflower.protocol.messages import flower as flower_record
from wallflower.protocol.messages.answers import (
    ABANDONED,
    MemoryAnswers,
    Progress,
    StoredAnswer,
)
from wallflower.protocol.messages.port import Answer, NodeId, Request
from wallflower.strategy.nodes.grid import Exchange, Fields, GridDispatcher, Pace
from wallflower.strategy.nodes.inbox import Inbox, Key

log = logging.getLogger("wallflower.flower")


@dataclass(slots=True)
class _Work:
    """A message under way and every ask that waits for its answer."""

    exchange: Exchange
    waiting: list[Inbox] = field(default_factory=list)


class FlowerPort:
    """A NodePort over any Flower Grid; use it as an async context manager.

    A node's name is what it answers to *hello*: in simulation Flower draws new node ids
    for every run, while ours must stay the same when a run is resumed. A second node
    that gives a name already taken is not listed.

    Parameters
    ----------
    grid : Grid
        Any of Flower's grids, or one of yours.
    pace : Pace, optional
        How eagerly to poll.
    hello_timeout_s : float
        How long a new node may take to tell its name.
    most_answer_bytes : int
        How much memory the stored answers may take.
    """

    def __init__(
        self,
        grid: Grid,
        *,
        pace: Pace | None = None,
        hello_timeout_s: float = 120.0,
        most_answer_bytes: int = 64 * 2**20,
    ) -> None:
        self._dispatcher = GridDispatcher(grid, pace or Pace())
        self._hello_timeout_s = hello_timeout_s
        self._flower_ids: dict[NodeId, int] = {}
        self._greeted: set[int] = set()
        self._answers = MemoryAnswers(most_bytes=most_answer_bytes)
        self._work: dict[Key, _Work] = {}

    @property
    def messages_sent(self) -> int:
        """Count the Flower messages sent so far."""
        return self._dispatcher.messages_sent

    async def __aenter__(self) -> Self:
        self._dispatcher.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._dispatcher.stop()

    async def nodes(self) -> Sequence[NodeId]:
        """Name the nodes that Flower lists now and that told us their name."""
        present = set(await self._dispatcher.node_ids())
        strangers = sorted(present - self._greeted)
        if strangers:
            await self._greet(strangers)
        return sorted(
            name for name, flower_id in self._flower_ids.items() if flower_id in present
        )

    async def ask(
        self, requests: Sequence[Request], *, timeout_s: float
    ) -> AsyncGenerator[Answer, None]:
        """Send all requests, yield answers as they come, end at the deadline."""
        self._require_open()
        deadline = asyncio.get_running_loop().time() + timeout_s
        inbox = Inbox(requests)
        try:
            fresh = [self._post(r, inbox, deadline) for r in inbox.requests.values()]
            self._dispatcher.submit([e for e in fresh if e is not None])
            while (answer := await inbox.next_before(deadline)) is not None:
                yield answer
        finally:
            self._abandon(inbox)

    async def flower_ids(self) -> Sequence[int]:
        """List the nodes as Flower numbers them, named or not."""
        return sorted(await self._dispatcher.node_ids())

    async def send(
        self, flower_id: int, kind: str, fields: Fields, *, timeout_s: float
    ) -> tuple[Fields | None, str | None]:
        """Send one message that is no request; give the reply's fields or a failure."""
        outcomes = self._exchange(kind, {"": (flower_id, fields)}, timeout_s)
        async with contextlib.aclosing(outcomes):
            async for _, reply, failure in outcomes:
                return reply, failure
        return None, "message-expired"

    def _post(self, request: Request, inbox: Inbox, deadline: float) -> Exchange | None:
        """Answer from what is stored, join work under way, or start it."""
        key = (request.node_id, request.request_id)
        flower_id = self._flower_ids.get(request.node_id)
        if flower_id is None:
            inbox.deliver(Answer(*key, failure="not-attending"))
            return None
        known = self._answers.begin(_name(key), request.body)
        if isinstance(known, StoredAnswer):
            inbox.deliver(Answer(*key, known.body, known.failure))
            return None
        if known is Progress.RUNNING:
            work = self._work[key]
            work.exchange.deadline = max(work.exchange.deadline, deadline)
            work.waiting.append(inbox)
            return None
        fields: Fields = {
            flower_record.REQUEST_ID: request.request_id,
            flower_record.BODY: request.body,
        }
        settled = partial(self._settled, key)
        exchange = Exchange(flower_id, flower_record.WORK, fields, deadline, settled)
        self._work[key] = _Work(exchange, [inbox])
        return exchange

    def _settled(self, key: Key, fields: Fields | None, failure: str | None) -> None:
        body = (fields or {}).get(flower_record.BODY)
        if failure is None and not isinstance(body, bytes):
            failure = "malformed-reply"
        stored = StoredAnswer(body if isinstance(body, bytes) else b"", failure)
        stored = self._answers.finish(_name(key), stored)
        work = self._work.pop(key, None)
        for inbox in work.waiting if work else ():
            inbox.deliver(Answer(*key, stored.body, stored.failure))

    def _abandon(self, inbox: Inbox) -> None:
        """Refuse what nobody waits for any more; its node stays busy until it ends."""
        for key in inbox.close():
            work = self._work.get(key)
            if work is None or inbox not in work.waiting:
                continue
            work.waiting.remove(inbox)
            if not work.waiting:
                work.exchange.abandoned = True
                self._answers.finish(_name(key), StoredAnswer(failure=ABANDONED))
                del self._work[key]

    async def _greet(self, strangers: Sequence[int]) -> None:
        """Ask nodes seen for the first time for their stable name."""
        nothing: Fields = {}
        bodies = {str(flower_id): (flower_id, nothing) for flower_id in strangers}
        greetings = self._exchange(flower_record.HELLO, bodies, self._hello_timeout_s)
        async for key, fields, failure in greetings:
            name = (fields or {}).get(flower_record.NAME)
            if not isinstance(name, str) or not name:
                reason = failure or "malformed-reply"
                log.warning("Flower node %s gave no name (%s)", key, reason)
                continue
            self._greeted.add(int(key))
            if name in self._flower_ids:
                log.warning("a second Flower node claims the name %s; refused", name)
            else:
                self._flower_ids[name] = int(key)

    async def _exchange(
        self, kind: str, bodies: Mapping[str, tuple[int, Fields]], timeout_s: float
    ) -> AsyncGenerator[tuple[str, Fields | None, str | None], None]:
        """Send messages that are no requests; yield outcomes until the deadline."""
        self._require_open()
        deadline = asyncio.get_running_loop().time() + timeout_s
        arrived: asyncio.Queue[tuple[str, Fields | None, str | None]] = asyncio.Queue()

        def settled(key: str, fields: Fields | None, failure: str | None) -> None:
            arrived.put_nowait((key, fields, failure))

        exchanges = [
            Exchange(flower_id, kind, fields, deadline, partial(settled, key))
            for key, (flower_id, fields) in bodies.items()
        ]
        self._dispatcher.submit(exchanges)
        try:
            for _ in exchanges:
                try:
                    async with asyncio.timeout_at(deadline):
                        outcome = await arrived.get()
                except TimeoutError:
                    return
                yield outcome
        finally:
            for exchange in exchanges:
                exchange.abandoned = True

    def _require_open(self) -> None:
        if not self._dispatcher.running:
            raise UnavailableError(
                "the Flower port is closed; open it with `async with` before asking"
            )


def _name(key: Key) -> str:
    node_id, request_id = key
    return f"{len(node_id)}:{node_id}{request_id}"
