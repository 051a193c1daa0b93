"""The answers of one `NodePort.ask`: filled by an adapter, drained by its caller."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from wallflower.protocol.messages.port import Answer, NodeId, Request

Key = tuple[NodeId, str]


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
        self._arrived: asyncio.Queue[Answer] = asyncio.Queue()

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
        self._arrived.put_nowait(answer)
        return True

    def refuse(self, request: Request, failure: str) -> None:
        """Say that one of the requests has no answer, and why."""
        self.deliver(Answer(request.node_id, request.request_id, failure=failure))

    async def next_before(self, deadline: float) -> Answer | None:
        """Give the next answer, or None at the end.

        The end is the deadline (in the loop's time), or that nothing is awaited and
        all was given. What had arrived by the deadline is still given.
        """
        if not self._arrived.empty():
            return self._arrived.get_nowait()
        if not self._awaited:
            return None
        try:
            async with asyncio.timeout_at(deadline):
                return await self._arrived.get()
        except TimeoutError:
            return None

    def close(self) -> frozenset[Key]:
        """Refuse everything from now on; give the requests that are abandoned."""
        abandoned = frozenset(self._awaited)
        self._awaited.clear()
        return abandoned
