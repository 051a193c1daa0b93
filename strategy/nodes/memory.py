"""Nodes in the same process: the port without a network."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field

from wallflower.protocol.messages.answers import (
    ABANDONED,
    MemoryAnswers,
    Progress,
    StoredAnswer,
)
from wallflower.protocol.messages.port import Answer, NodeHandler, NodeId, Request
from wallflower.strategy.nodes.inbox import Inbox, Key

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Work:
    """A handler at work and everyone who waits for it."""

    task: asyncio.Task[None]
    waiting: list[Inbox] = field(default_factory=list)


class MemoryPort:
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
        most_answer_bytes: int = 64 * 2**20,
    ) -> None:
        self._handlers = handlers
        self._answers = MemoryAnswers(most_bytes=most_answer_bytes)
        self._work: dict[Key, _Work] = {}

    async def nodes(self) -> Sequence[NodeId]:
        """Name every node."""
        return sorted(self._handlers)

    async def ask(
        self, requests: Sequence[Request], *, timeout_s: float
    ) -> AsyncGenerator[Answer, None]:
        """Run the handlers; yield answers as they come (see `NodePort.ask`)."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        inbox = Inbox(requests)
        try:
            for request in inbox.requests.values():
                self._post(request, inbox)
            while (answer := await inbox.next_before(deadline)) is not None:
                yield answer
        finally:
            await self._abandon(inbox)

    def _post(self, request: Request, inbox: Inbox) -> None:
        key = (request.node_id, request.request_id)
        handler = self._handlers.get(request.node_id)
        if handler is None:
            inbox.deliver(Answer(*key, failure="not-attending"))
            return
        known = self._answers.begin(_name(key), request.body)
        if isinstance(known, StoredAnswer):
            inbox.deliver(Answer(*key, known.body, known.failure))
            return
        if known is Progress.NEW:
            task = asyncio.create_task(self._run(handler, request))
            self._work[key] = _Work(task)
        self._work[key].waiting.append(inbox)

    async def _run(self, handler: NodeHandler, request: Request) -> None:
        key = (request.node_id, request.request_id)
        try:
            result = StoredAnswer(await handler.handle(request.body))
        except Exception as error:
            # The text of a handler's error may quote what the handler was given.
            _log.warning(
                "node handler failed",
                extra={
                    "event": "handler-failed",
                    "node_id": request.node_id,
                    "error": type(error).__name__,
                },
            )
            result = StoredAnswer(failure="node-failed")
        result = self._answers.finish(_name(key), result)
        work = self._work.pop(key, None)  # None: abandoned meanwhile
        for inbox in work.waiting if work else ():
            inbox.deliver(Answer(*key, result.body, result.failure))

    async def _abandon(self, inbox: Inbox) -> None:
        """Stop the handlers that only this ask was waiting for."""
        stopped = []
        for key in inbox.close():
            work = self._work.get(key)
            if work is None or inbox not in work.waiting:
                continue
            work.waiting.remove(inbox)
            if not work.waiting:
                self._answers.finish(_name(key), StoredAnswer(failure=ABANDONED))
                del self._work[key]
                work.task.cancel()
                stopped.append(work.task)
        if stopped:
            await asyncio.wait(stopped)


def _name(key: Key) -> str:
    node_id, request_id = key
    return f"{len(node_id)}:{node_id}{request_id}"
