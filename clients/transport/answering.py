"""A node's work on requests: at most once each, a few at a time, whoever carries them.

Outlives streams: work goes on while the connection is away, and what was answered is
kept, so that the same request gets the same answer after a reconnect.
"""

from __future__ import annotations

import asyncio
from collections import deque

from wallflower.protocol.messages.answers import (
    ABANDONED,
    AnswerStore,
    Progress,
    StoredAnswer,
    answered,
)
from wallflower.protocol.messages.port import NodeHandler
from wallflower.protocol.wire import node_service_pb2

_FRAME_BYTES = 1024  # room for ids and lengths around an answer's body


class Outbox:
    """Frames on their way to the gRPC server; `full` holds back whoever fills it."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._frames: deque[bytes] = deque()
        self._changed = asyncio.Event()

    def put(self, frame: bytes) -> None:
        """Queue a frame."""
        self._frames.append(frame)
        self._changed.set()

    async def take(self) -> bytes:
        """Return the next frame, waiting for one."""
        while not self._frames:
            self._changed.clear()
            await self._changed.wait()
        frame = self._frames.popleft()
        self._changed.set()
        return frame

    async def room(self) -> None:
        """Wait while the gRPC server reads slower than we answer."""
        while len(self._frames) > self._most:
            self._changed.clear()
            await self._changed.wait()


class Answering:
    """Runs a handler for each new request; remembers every answer.

    Parameters
    ----------
    handler : NodeHandler
        The node.
    answers : AnswerStore
        What was answered before.
    group : asyncio.TaskGroup
        Owns the work; ends with the connection.
    concurrency : int
        Handlers at work at once; the others wait their turn.
    most_waiting : int
        Requests accepted and not answered; more are failed, not queued.
    """

    def __init__(
        self,
        handler: NodeHandler,
        answers: AnswerStore,
        group: asyncio.TaskGroup,
        *,
        concurrency: int,
        most_waiting: int = 1024,
    ) -> None:
        self._handler = handler
        self._answers = answers
        self._group = group
        self._turn = asyncio.Semaphore(concurrency)
        self._most_waiting = most_waiting
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self.outbox: Outbox | None = None
        self.most_bytes = 4 * 2**20

    def request(self, request: node_service_pb2.PendingRequest) -> None:
        """Work on a request, or repeat what is stored."""
        request_id, body = request.request_id, request.body
        if request_id not in self._tasks and len(self._tasks) >= self._most_waiting:
            self._send(request_id, StoredAnswer(failure="node-busy"))
            return
        known = self._answers.begin(request_id, body)
        if isinstance(known, StoredAnswer):
            self._send(request_id, known)
        elif known is Progress.NEW:
            self._tasks[request_id] = self._group.create_task(
                self._work(request_id, body)
            )

    def abandon(self, request_id: str) -> None:
        """Stop working on a request that nobody waits for."""
        task = self._tasks.pop(request_id, None)
        if task is not None:
            self._answers.finish(request_id, StoredAnswer(failure=ABANDONED))
            task.cancel()

    def stop(self) -> None:
        """Stop all work."""
        for task in self._tasks.values():
            task.cancel()

    async def _work(self, request_id: str, body: bytes) -> None:
        async with self._turn:
            result = await answered(self._handler, body)
        if len(result.body) + _FRAME_BYTES > self.most_bytes:
            result = StoredAnswer(failure="too-large")
        result = self._answers.finish(request_id, result)
        if self._tasks.pop(request_id, None) is not None:
            self._send(request_id, result)

    def _send(self, request_id: str, answer: StoredAnswer) -> None:
        """Queue an answer; while the gRPC server is away it stays in the store only."""
        if self.outbox is None:
            return
        frame = node_service_pb2.PendingAnswer(request_id=request_id)
        if answer.failure is None:
            frame.body = answer.body
        else:
            frame.failure = answer.failure
        self.outbox.put(node_service_pb2.FromNode(answer=frame).SerializeToString())
