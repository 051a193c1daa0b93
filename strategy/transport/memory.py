"""Nodes in the same process: the transport without a network."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence

from wallflower.protocol.messages.answers import answered
from wallflower.protocol.messages.port import Answer, NodeHandler, NodeId, Request
from wallflower.strategy.transport.pending_requests import (
    MOST_ANSWER_BYTES,
    Inbox,
    PendingRequests,
    ask_all,
)


class MemoryTransport:
    """Calls each node's handler directly, all of them concurrently.

    Parameters
    ----------
    handlers : Mapping[NodeId, NodeHandler]
        The nodes. The mapping is read on every call, so nodes may come and go.
    most_answer_bytes : int
        How much memory the stored answers of all nodes may take.
    """

    def __init__(
        self,
        handlers: Mapping[NodeId, NodeHandler],
        *,
        most_answer_bytes: int = MOST_ANSWER_BYTES,
    ) -> None:
        self._handlers = handlers
        self._outstanding: PendingRequests[asyncio.Task[None]] = PendingRequests(
            most_answer_bytes
        )

    async def nodes(self) -> Sequence[NodeId]:
        """Name every node."""
        return sorted(self._handlers)

    def ask(
        self, requests: Sequence[Request], *, timeout_s: float
    ) -> AsyncGenerator[Answer, None]:
        """Run the handlers; yield answers as they come (see `NodeTransport.ask`)."""
        return ask_all(requests, timeout_s, self._post, self._abandon)

    def _post(self, request: Request, inbox: Inbox, _deadline: float) -> None:
        handler = self._handlers.get(request.node_id)
        if handler is None:
            inbox.refuse(request, "not-connected")
            return
        self._outstanding.join(
            request, inbox, lambda: asyncio.create_task(self._run(handler, request))
        )

    async def _run(self, handler: NodeHandler, request: Request) -> None:
        result = await answered(handler, request.body, node_id=request.node_id)
        self._outstanding.settle((request.node_id, request.request_id), result)

    async def _abandon(self, inbox: Inbox) -> None:
        """Stop the handlers that only this ask was waiting for."""
        stopped = []
        for key, task in self._outstanding.leave(inbox):
            self._outstanding.abandon(key)
            task.cancel()
            stopped.append(task)
        if stopped:
            await asyncio.wait(stopped)
