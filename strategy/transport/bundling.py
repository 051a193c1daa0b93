"""Everything one node must do now in one message, and one message at a time.

Where a message is dear (Flower starts work for each, and loses state when two are under
way on one node) this transport stands before the real one. Requests of all arms that
are ready together travel as one NodeRequest. While a node is busy its next ones wait
and are bundled in turn.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Self

from google.protobuf.message import DecodeError

from wallflower.protocol.errors import UnavailableError
from wallflower.protocol.messages.answers import StoredAnswer
from wallflower.protocol.messages.port import Answer, NodeId, NodeTransport, Request
from wallflower.protocol.wire.node_pb2 import NodeAnswer, NodeRequest
from wallflower.strategy.transport.pending_requests import (
    Inbox,
    Key,
    PendingRequests,
    ask_all,
)

# Protobuf refuses messages of 2 GB; far below that a bundle stops being a help.
_MOST_BYTES = 32 * 2**20
LINGER_S = 0.01


@dataclass(slots=True, eq=False)
class _Member:
    """One request waiting for, or inside, a bundle."""

    key: Key
    request: Request
    deadline: float


@dataclass(slots=True, eq=False)
class _Bundle:
    """What travels to one node at once; `tasks` says whose each task id is."""

    request: Request
    members: list[_Member]
    tasks: dict[str, _Member] | None  # None: one request, carried as it is


class BundlingTransport:
    """A NodeTransport over another; use it as an async context manager.

    Parameters
    ----------
    transport : NodeTransport
        What really reaches the nodes.
    linger_s : float
        How long to wait for more requests before a bundle leaves: cohorts of several
        arms come to their next stage within moments of each other.
    """

    def __init__(self, transport: NodeTransport, *, linger_s: float = LINGER_S) -> None:
        self._transport = transport
        self._linger_s = linger_s
        self._outstanding: PendingRequests[_Member] = PendingRequests()
        self._queues: dict[NodeId, list[_Member]] = {}
        self._busy: set[NodeId] = set()
        self._carriers: set[asyncio.Task[None]] = set()
        self._flushing: asyncio.TimerHandle | None = None
        self._numbers = itertools.count(1)
        self._open = False
        self.bundles_sent = 0

    async def __aenter__(self) -> Self:
        self._open = True
        return self

    async def __aexit__(self, *_: object) -> None:
        self._open = False
        if self._flushing is not None:
            self._flushing.cancel()
        for carrier in self._carriers:
            carrier.cancel()
        if self._carriers:
            await asyncio.wait(self._carriers)

    async def nodes(self) -> Sequence[NodeId]:
        """Name the nodes that can be asked now."""
        return await self._transport.nodes()

    def ask(
        self, requests: Sequence[Request], *, timeout_s: float
    ) -> AsyncGenerator[Answer, None]:
        """Send all requests, bundled by node; see `NodeTransport.ask`."""
        return ask_all(requests, timeout_s, self._post, self._abandon)

    def _post(self, request: Request, inbox: Inbox, deadline: float) -> None:
        if not self._open:
            raise UnavailableError("the bundling transport is closed")
        member = self._outstanding.join(
            request, inbox, lambda: self._queue(request, deadline)
        )
        if member is not None:
            member.deadline = max(member.deadline, deadline)

    def _queue(self, request: Request, deadline: float) -> _Member:
        member = _Member((request.node_id, request.request_id), request, deadline)
        self._queues.setdefault(request.node_id, []).append(member)
        self._flush_soon()
        return member

    def _flush_soon(self) -> None:
        if self._flushing is None and self._open:
            loop = asyncio.get_running_loop()
            self._flushing = loop.call_later(self._linger_s, self._flush)

    def _flush(self) -> None:
        self._flushing = None
        bundles: dict[NodeId, _Bundle] = {}
        for node_id in [n for n in self._queues if n not in self._busy]:
            bundles[node_id] = self._bundle(node_id, self._queues[node_id])
            if not self._queues[node_id]:
                del self._queues[node_id]
        if bundles:
            self._busy |= bundles.keys()
            self.bundles_sent += len(bundles)
            carrier = asyncio.create_task(self._carry(bundles))
            self._carriers.add(carrier)
            carrier.add_done_callback(self._carriers.discard)

    def _bundle(self, node_id: NodeId, queue: list[_Member]) -> _Bundle:
        """Take from a node's queue what can travel together; at least one request."""
        joined = NodeRequest()
        tasks: dict[str, _Member] = {}
        members: list[_Member] = []
        size = 0
        while queue:
            member = queue[0]
            size += len(member.request.body)
            try:
                request = NodeRequest.FromString(member.request.body)
            except DecodeError:
                request = NodeRequest()  # not ours to understand: travels alone
            names = [task.task_id for task in request.tasks]
            if members and (
                not names
                or size > _MOST_BYTES
                or request.run_id != joined.run_id
                or not tasks.keys().isdisjoint(names)
            ):
                break
            members.append(queue.pop(0))
            if not names:
                break
            joined.run_id = request.run_id
            joined.tasks.extend(request.tasks)
            tasks |= dict.fromkeys(names, member)
        if len(members) == 1:
            return _Bundle(members[0].request, members, None)
        number = next(self._numbers)
        request_id = f"bundle/{number}/{members[0].request.request_id}"
        body = joined.SerializeToString()
        return _Bundle(Request(node_id, request_id, body), members, tasks)

    async def _carry(self, bundles: dict[NodeId, _Bundle]) -> None:
        now = asyncio.get_running_loop().time()
        latest = max(m.deadline for b in bundles.values() for m in b.members)
        stream = self._transport.ask(
            [bundle.request for bundle in bundles.values()],
            timeout_s=max(0.001, latest - now),
        )
        try:
            async with aclosing(stream) as answers:
                async for answer in answers:
                    bundle = bundles.pop(answer.node_id, None)
                    if bundle is not None:
                        self._settle(bundle, answer)
                        self._free(answer.node_id)
        finally:
            for node_id, bundle in bundles.items():
                for member in bundle.members:
                    self._outstanding.abandon(member.key)
                self._free(node_id)

    def _free(self, node_id: NodeId) -> None:
        self._busy.discard(node_id)
        if node_id in self._queues:
            self._flush_soon()

    def _settle(self, bundle: _Bundle, answer: Answer) -> None:
        """Send every member its part of the answer."""
        whole = StoredAnswer(answer.body, answer.failure)
        parts: dict[Key, NodeAnswer] = {}
        if answer.failure is None and bundle.tasks is not None:
            try:
                reply = NodeAnswer.FromString(answer.body)
            except DecodeError:
                whole = StoredAnswer(failure="malformed-reply")
            else:
                parts = {member.key: NodeAnswer() for member in bundle.members}
                for task in reply.answers:
                    if (owner := bundle.tasks.get(task.task_id)) is not None:
                        parts[owner.key].answers.append(task)
        for key in [member.key for member in bundle.members]:
            part = StoredAnswer(parts[key].SerializeToString()) if parts else whole
            self._outstanding.settle(key, part)

    async def _abandon(self, inbox: Inbox) -> None:
        """Forget what nobody waits for; what is on its way keeps its node busy."""
        for key, member in self._outstanding.leave(inbox):
            queue = self._queues.get(key[0], [])
            if member in queue:
                queue.remove(member)
                if not queue:
                    del self._queues[key[0]]
                self._outstanding.abandon(key)
