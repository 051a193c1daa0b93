"""Flower's Grid as a NodePort.

Used where the work itself travels as Flower messages: Flower's simulation, and sites
where only Flower's port may be open. In a deployment each message costs a process start
on the node, so there the desk carries the work and this port sends one *attend* each.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from types import TracebackType
from typing import Self

from flwr.serverapp import Grid

from protocol import envelope
from protocol.errors import UnavailableError
from protocol.port import Answer, NodeId, Request
from strategy.grid_dispatcher import Exchange, Fields, GridDispatcher, Outcome, Pace

log = logging.getLogger("wallflower.flower")


class FlowerPort:
    """A NodePort over any Flower Grid; use it as an async context manager.

    A node's name is what it answers to *hello*: in simulation Flower draws new node ids
    for every run, while ours must stay the same when a run is resumed. A second node
    that gives a name already taken is not listed.
    """

    def __init__(
        self, grid: Grid, *, pace: Pace | None = None, hello_timeout_s: float = 120.0
    ) -> None:
        self._dispatcher = GridDispatcher(grid, pace or Pace())
        self._hello_timeout_s = hello_timeout_s
        self._flower_ids: dict[NodeId, int] = {}
        self._greeted: set[int] = set()

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
    ) -> AsyncIterator[Answer]:
        """Send all requests, yield answers as they come, end at the deadline."""
        bodies: dict[str, tuple[int, Fields]] = {}
        sent: dict[str, Request] = {}
        for request in requests:
            flower_id = self._flower_ids.get(request.node_id)
            if flower_id is None:
                yield Answer(request.node_id, request.request_id, failure="node-gone")
                continue
            key = f"{request.node_id}\n{request.request_id}"
            sent[key] = request
            bodies[key] = (
                flower_id,
                {envelope.REQUEST_ID: request.request_id, envelope.BODY: request.body},
            )
        outcomes = self._exchange(envelope.WORK, bodies, timeout_s)
        async with contextlib.aclosing(outcomes):
            async for outcome in outcomes:
                yield _answer(sent[outcome.key], outcome)

    async def summon(
        self, invitations: Mapping[NodeId, Fields], *, timeout_s: float
    ) -> AsyncIterator[tuple[NodeId, str | None]]:
        """Send each node to the desk; yield (node, failure) when it comes back.

        A node's reply arrives when it has left the desk, so the timeout is the run's.
        """
        bodies = {
            name: (self._flower_ids[name], fields)
            for name, fields in invitations.items()
            if name in self._flower_ids
        }
        outcomes = self._exchange(envelope.ATTEND, bodies, timeout_s)
        async with contextlib.aclosing(outcomes):
            async for outcome in outcomes:
                yield outcome.key, outcome.failure

    async def _greet(self, strangers: Sequence[int]) -> None:
        """Ask nodes seen for the first time for their stable name."""
        nothing: Fields = {}
        bodies = {str(flower_id): (flower_id, nothing) for flower_id in strangers}
        outcomes = self._exchange(envelope.HELLO, bodies, self._hello_timeout_s)
        async with contextlib.aclosing(outcomes):
            async for outcome in outcomes:
                self._admit(int(outcome.key), outcome)

    def _admit(self, flower_id: int, outcome: Outcome) -> None:
        """Enter a node under its name; one without a name is asked again later."""
        name = (outcome.fields or {}).get(envelope.NAME)
        if not isinstance(name, str) or not name:
            reason = outcome.failure or "empty reply"
            log.warning("Flower node %d gave no name (%s)", flower_id, reason)
            return
        self._greeted.add(flower_id)
        if name in self._flower_ids:
            log.warning("a second Flower node claims the name %s; refused", name)
        else:
            self._flower_ids[name] = flower_id

    async def _exchange(
        self, kind: str, bodies: Mapping[str, tuple[int, Fields]], timeout_s: float
    ) -> AsyncIterator[Outcome]:
        """Hand messages to the dispatcher and yield outcomes until the deadline."""
        if not self._dispatcher.running:
            raise UnavailableError(
                "the Flower port is closed; open it with `async with` before asking"
            )
        deadline = asyncio.get_running_loop().time() + timeout_s
        inbox: asyncio.Queue[Outcome] = asyncio.Queue()
        exchanges = [
            Exchange(key, flower_id, kind, fields, deadline, inbox)
            for key, (flower_id, fields) in bodies.items()
        ]
        self._dispatcher.submit(exchanges)
        try:
            for _ in exchanges:
                try:
                    async with asyncio.timeout_at(deadline):
                        outcome = await inbox.get()
                except TimeoutError:
                    return
                yield outcome
        finally:
            for exchange in exchanges:
                exchange.abandoned = True


def _answer(request: Request, outcome: Outcome) -> Answer:
    """Turn a message's outcome into the answer of a request."""
    body = (outcome.fields or {}).get(envelope.BODY)
    failure = outcome.failure
    if failure is None and not isinstance(body, bytes):
        failure = "malformed-reply"
    if failure is not None:
        return Answer(request.node_id, request.request_id, failure=failure)
    assert isinstance(body, bytes)
    return Answer(request.node_id, request.request_id, body)
