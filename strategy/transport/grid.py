"""The one task that touches Flower's Grid.

flwr has no asyncio and its Grid is polled, so a single task owns it: it pushes what is
ready, pulls the replies of all outstanding ids in one call, and sleeps a little longer
each time nothing came; a new message ends the sleep. Push and pull run in a thread, one
call at a time. Each node has at most one message in flight, because concurrent messages
to one node race for its state; further ones queue behind it. A message's time to live
follows its asker's deadline: Flower's own ``timeout`` would leave it running.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar, runtime_checkable

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid

from wallflower.protocol.messages import flower as flower_record

log = logging.getLogger("wallflower.flower")

Fields = Mapping[str, bytes | str]
Result = TypeVar("Result")

_MOST_PUSHED = 256  # messages at once

# Flower's numeric error codes (flwr.common.constant.ErrorCode) in our words.
FAILURES: Mapping[int, str] = {
    0: "node-failed",
    1: "client-app-not-loaded",
    2: "node-failed",
    3: "message-expired",
    4: "message-expired",
    5: "node-gone",
    6: "client-mod-refused",
    7: "invalid-app-bundle",
    8: "node-crashed",
}


@dataclass(frozen=True, slots=True)
class Pace:
    """How often the dispatcher looks for replies.

    The pause starts at `shortest_s` after anything happened and grows by half each time
    nothing did. `grace_s` is added to a message's time to live for the way back.
    """

    shortest_s: float = 0.005
    longest_s: float = 0.5
    grace_s: float = 1.0


@runtime_checkable
class NotifyingGrid(Protocol):
    """A Grid that can say when a reply came, so that nobody need poll it."""

    def notify(self, callback: Callable[[], None]) -> None:
        """Call this, from any thread, whenever a reply can be pulled."""
        ...


@dataclass(slots=True, eq=False)
class Exchange:
    """One message to one node, and who is told what became of it.

    `settled` gets the fields of the reply, or a named failure.
    """

    flower_id: int
    kind: str
    fields: Fields
    deadline: float  # in the event loop's time
    settled: Callable[[Fields | None, str | None], None]
    abandoned: bool = False
    message: Message | None = field(default=None, repr=False)

    def settle(self, fields: Fields | None, failure: str | None) -> None:
        """Hand over the outcome, unless nobody waits for it any more."""
        if not self.abandoned:
            self.settled(fields, failure)


class GridDispatcher:
    """Owns a Grid: queues per node, one message in flight per node, one poller."""

    def __init__(self, grid: Grid, pace: Pace) -> None:
        self._grid = grid
        self._pace = pace
        self._queues: dict[int, deque[Exchange]] = {}
        self._in_flight: dict[str, Exchange] = {}
        self._busy: set[int] = set()
        self._wake = asyncio.Event()
        self._one_call = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self.messages_sent = 0
        self.calls = 0

    @property
    def running(self) -> bool:
        """Return whether messages can be sent."""
        return self._task is not None and not self._task.done()

    def start(self) -> None:
        """Start the dispatcher's task in the running loop."""
        if isinstance(self._grid, NotifyingGrid):
            loop = asyncio.get_running_loop()
            self._grid.notify(lambda: _wake_from_thread(loop, self._wake))
        self._task = asyncio.create_task(self._dispatch(), name="grid-dispatcher")

    async def stop(self) -> None:
        """End the task; whatever is outstanding is forgotten."""
        if self._task is None:
            return
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        self._queues.clear()
        self._in_flight.clear()
        self._busy.clear()

    def submit(self, exchanges: Sequence[Exchange]) -> None:
        """Queue messages; the poller's pause ends now."""
        for exchange in exchanges:
            self._queues.setdefault(exchange.flower_id, deque()).append(exchange)
        self._wake.set()

    async def node_ids(self) -> list[int]:
        """List the nodes of the run as Flower numbers them."""
        return await self._call(lambda: list(self._grid.get_node_ids()))

    async def _call(self, function: Callable[[], Result]) -> Result:
        """Run one grid call in a thread; never two at once, never half-cancelled."""
        async with self._one_call:
            self.calls += 1
            thread = asyncio.ensure_future(asyncio.to_thread(function))
            try:
                return await asyncio.shield(thread)
            except asyncio.CancelledError:
                # The thread cannot be stopped; leaving it behind would let it use the
                # grid together with whoever comes next.
                with contextlib.suppress(Exception):
                    await thread
                raise

    async def _dispatch(self) -> None:
        loop = asyncio.get_running_loop()
        pause_s = self._pace.shortest_s
        while True:
            self._wake.clear()
            try:
                pushed = await self._push_ready()
                moved = await self._pull_replies() or pushed
            except Exception as error:
                # Anyone's Grid may raise anything while its server is away. Every
                # request keeps its deadline, so trying again cannot hang.
                log.warning("Flower's grid failed (%s); retrying", type(error).__name__)
                moved = False
            self._forget_expired(loop.time())
            if moved:
                pause_s = self._pace.shortest_s
            else:
                pause_s = min(pause_s * 1.5, self._pace.longest_s)
            waiting = bool(self._in_flight) or any(self._queues.values())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s if waiting else None):
                    await self._wake.wait()

    def _ready(self) -> list[Exchange]:
        """Take the next message of every idle node, up to one push's worth."""
        now = asyncio.get_running_loop().time()
        batch: list[Exchange] = []
        for flower_id, queue in list(self._queues.items()):
            while queue and (queue[0].abandoned or queue[0].deadline <= now):
                queue.popleft()
            if not queue:
                del self._queues[flower_id]
            elif flower_id not in self._busy:
                batch.append(queue[0])
                if len(batch) == _MOST_PUSHED:
                    break
        return batch

    async def _push_ready(self) -> bool:
        """Push batches until no idle node has a message waiting."""
        pushed = False
        while batch := self._ready():
            now = asyncio.get_running_loop().time()
            messages = [self._message(exchange, now) for exchange in batch]
            accepted = set(
                await self._call(lambda m=messages: list(self._grid.push_messages(m)))  # type: ignore[misc]
            )
            for exchange, message in zip(batch, messages, strict=True):
                self._queues[exchange.flower_id].remove(exchange)
                message_id = message.metadata.message_id
                if message_id in accepted:
                    self._in_flight[message_id] = exchange
                    self._busy.add(exchange.flower_id)
                    self.messages_sent += 1
                else:
                    exchange.settle(None, "not-accepted")
            pushed = True
        return pushed

    def _message(self, exchange: Exchange, now: float) -> Message:
        """Make the Flower message once, so that a repeated push has the same id."""
        if exchange.message is None:
            ttl_s = max(exchange.deadline - now, 0.0) + self._pace.grace_s
            record = ConfigRecord(dict(exchange.fields))
            exchange.message = Message(
                RecordDict({flower_record.RECORD: record}),
                exchange.flower_id,
                exchange.kind,
                ttl=ttl_s,
            )
        return exchange.message

    async def _pull_replies(self) -> bool:
        """Pull the replies of all outstanding messages in one call."""
        if not self._in_flight:
            return False
        ids = list(self._in_flight)
        replies = await self._call(lambda: list(self._grid.pull_messages(ids)))
        for reply in replies:
            exchange = self._land(reply.metadata.reply_to_message_id)
            if exchange is None:
                continue
            if reply.has_error():
                exchange.settle(None, FAILURES.get(reply.error.code, "node-failed"))
            elif (fields := _fields(reply)) is None:
                exchange.settle(None, "malformed-reply")
            else:
                exchange.settle(fields, None)
        return bool(replies)

    def _land(self, message_id: str) -> Exchange | None:
        """Take a message out of flight; its node is free again."""
        exchange = self._in_flight.pop(message_id, None)
        if exchange is not None:
            exchange.message = None
            self._busy.discard(exchange.flower_id)
        return exchange

    def _forget_expired(self, now: float) -> None:
        """Free the nodes whose message outlived its asker; the reply is refused."""
        for message_id, exchange in list(self._in_flight.items()):
            if exchange.deadline + self._pace.grace_s <= now:
                self._land(message_id)
                exchange.settle(None, "message-expired")


def _wake_from_thread(loop: asyncio.AbstractEventLoop, wake: asyncio.Event) -> None:
    with contextlib.suppress(RuntimeError):  # the loop ended; nobody is to be woken
        loop.call_soon_threadsafe(wake.set)


def _fields(reply: Message) -> Fields | None:
    """Read our record; None when the reply is not one of ours."""
    if not reply.has_content():
        return None
    record = reply.content.get(flower_record.RECORD)
    if not isinstance(record, ConfigRecord):
        return None
    return {
        key: value for key, value in record.items() if isinstance(value, bytes | str)
    }
