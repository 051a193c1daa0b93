"""Flower's Grid as a NodeTransport.

Used where the work itself travels as Flower messages: Flower's simulation, and sites
where only Flower's port may be open. In a deployment each message costs a process start
on the node, so there the gRPC server carries the work and this transport sends one
*connect* each (`strategy.transport.node_inviter`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from functools import partial
from typing import Self

from flwr.serverapp import Grid

from wallflower.protocol.errors import UnavailableError
from wallflower.protocol.messages import flower as flower_record
from wallflower.protocol.messages.answers import StoredAnswer
from wallflower.protocol.messages.port import Answer, NodeId, Request
from wallflower.strategy.transport.grid import Exchange, Fields, GridDispatcher, Pace
from wallflower.strategy.transport.pending_requests import (
    Inbox,
    Key,
    PendingRequests,
    ask_all,
)

log = logging.getLogger("wallflower.flower")

Outcome = tuple[Fields | None, str | None]  # what a node replied, or why nothing


class FlowerTransport:
    """A NodeTransport over any Flower Grid; use it as an async context manager.

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
    """

    def __init__(
        self,
        grid: Grid,
        *,
        pace: Pace | None = None,
        hello_timeout_s: float = 120.0,
    ) -> None:
        self._dispatcher = GridDispatcher(grid, pace or Pace())
        self._hello_timeout_s = hello_timeout_s
        self._flower_ids: dict[NodeId, int] = {}
        self._named: set[int] = set()
        self._outstanding: PendingRequests[Exchange] = PendingRequests()

    @property
    def messages_sent(self) -> int:
        """Count the Flower messages sent so far."""
        return self._dispatcher.messages_sent

    async def __aenter__(self) -> Self:
        self._dispatcher.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._dispatcher.stop()

    async def nodes(self) -> Sequence[NodeId]:
        """Name the nodes that Flower lists now and that told us their name."""
        present = set(await self._dispatcher.node_ids())
        if strangers := sorted(present - self._named):
            self._require_open()
            async with asyncio.TaskGroup() as group:
                for flower_id in strangers:
                    group.create_task(self._learn_name(flower_id))
        return sorted(
            name for name, flower_id in self._flower_ids.items() if flower_id in present
        )

    def ask(
        self, requests: Sequence[Request], *, timeout_s: float
    ) -> AsyncGenerator[Answer, None]:
        """Send all requests, yield answers as they come, end at the deadline."""
        return ask_all(requests, timeout_s, self._post, self._abandon)

    async def flower_ids(self) -> Sequence[int]:
        """List the nodes as Flower numbers them, named or not."""
        return sorted(await self._dispatcher.node_ids())

    async def send(
        self, flower_id: int, kind: str, fields: Fields, *, timeout_s: float
    ) -> Outcome:
        """Send one message that is no request; give the reply's fields or a failure."""
        self._require_open()
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[Outcome] = loop.create_future()

        def settled(fields: Fields | None, failure: str | None) -> None:
            if not outcome.done():
                outcome.set_result((fields, failure))

        deadline = loop.time() + timeout_s
        exchange = Exchange(flower_id, kind, fields, deadline, settled)
        self._dispatcher.submit([exchange])
        try:
            async with asyncio.timeout_at(deadline):
                return await outcome
        except TimeoutError:
            return None, "message-expired"
        finally:
            exchange.abandoned = True

    def _post(self, request: Request, inbox: Inbox, deadline: float) -> None:
        self._require_open()
        flower_id = self._flower_ids.get(request.node_id)
        if flower_id is None:
            inbox.refuse(request, "not-connected")
            return
        exchange = self._outstanding.join(
            request, inbox, lambda: self._start(flower_id, request, deadline)
        )
        if exchange is not None:
            exchange.deadline = max(exchange.deadline, deadline)

    def _start(self, flower_id: int, request: Request, deadline: float) -> Exchange:
        fields: Fields = {
            flower_record.REQUEST_ID: request.request_id,
            flower_record.BODY: request.body,
        }
        settled = partial(self._settle, (request.node_id, request.request_id))
        exchange = Exchange(flower_id, flower_record.WORK, fields, deadline, settled)
        self._dispatcher.submit([exchange])
        return exchange

    def _settle(self, key: Key, fields: Fields | None, failure: str | None) -> None:
        body = (fields or {}).get(flower_record.BODY)
        if failure is None and not isinstance(body, bytes):
            failure = "malformed-reply"
        stored = StoredAnswer(body if isinstance(body, bytes) else b"", failure)
        self._outstanding.settle(key, stored)

    async def _abandon(self, inbox: Inbox) -> None:
        """Refuse what nobody waits for any more; its node stays busy until it ends."""
        for key, exchange in self._outstanding.leave(inbox):
            exchange.abandoned = True
            self._outstanding.abandon(key)

    async def _learn_name(self, flower_id: int) -> None:
        """Ask a node seen for the first time for its stable name."""
        fields, failure = await self.send(
            flower_id, flower_record.HELLO, {}, timeout_s=self._hello_timeout_s
        )
        name = (fields or {}).get(flower_record.NAME)
        if not isinstance(name, str) or not name:
            reason = failure or "malformed-reply"
            log.warning("Flower node %d gave no name (%s)", flower_id, reason)
            return
        self._named.add(flower_id)
        if name in self._flower_ids:
            log.warning("a second Flower node claims the name %s; refused", name)
        else:
            self._flower_ids[name] = flower_id

    def _require_open(self) -> None:
        if not self._dispatcher.running:
            raise UnavailableError(
                "the Flower transport is closed; "
                "open it with `async with` before asking"
            )
