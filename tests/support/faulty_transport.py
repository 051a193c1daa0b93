"""A port that misbehaves on purpose, driven by a seed.

Wraps any `NodeTransport` and is one itself: requests and answers get lost, doubled,
delayed, overtaken by others, corrupted; nodes crash at any step, for good or for one
request, or are away for a moment and come back. The same seed gives every request the
same fate, in whatever order requests are asked, so that a schedule that found a bug
finds it again.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, fields, replace
from enum import Enum

from wallflower.protocol.errors import InputError
from wallflower.protocol.messages.port import Answer, NodeId, NodeTransport, Request
from wallflower.strategy.transport.pending_requests import Inbox


@dataclass(frozen=True, slots=True)
class Faults:
    """How likely each fault is, per request; `delay_s` is the longest delay.

    `crash` is the probability that a node dies during the schedule, at a step drawn
    from its first `crash_steps` requests; half of the crashes happen after the node
    did its work and before the answer left. Time is cut into pieces of `flap_s`; in
    each a node is away with probability `flap`: not listed, and what is asked of it,
    or answered by it, waits until it is back, as at a gRPC server.
    """

    lose_request: float = 0.0
    lose_answer: float = 0.0
    duplicate: float = 0.0
    replay: float = 0.0
    delay: float = 0.0
    corrupt_request: float = 0.0
    corrupt_answer: float = 0.0
    crash: float = 0.0
    flap: float = 0.0
    delay_s: float = 1.0
    crash_steps: int = 3
    flap_s: float = 1.0

    def __post_init__(self) -> None:
        """Check that the probabilities are probabilities."""
        for name in _PROBABILITIES:
            value = getattr(self, name)
            if not 0 <= value <= 1:
                raise InputError(name.replace("_", "-"), value, "between 0 and 1")

    @classmethod
    def drawn(cls, seed: int, *, delay_s: float = 1.0) -> Faults:
        """Draw a climate: which faults occur in this schedule, and how often."""
        source = random.Random(f"climate {seed}")
        chosen = source.sample(_PROBABILITIES, source.randint(1, len(_PROBABILITIES)))
        # From "now and then" to "every third message".
        levels = {name: source.choice((0.02, 0.08, 0.3)) for name in chosen}
        return replace(cls(delay_s=delay_s), **levels)  # type: ignore[arg-type]


_PROBABILITIES = [
    field.name for field in fields(Faults) if not field.name.endswith(("_s", "_steps"))
]


class _Crash(Enum):
    NEVER = 0
    BEFORE_WORK = 1
    AFTER_WORK = 2


@dataclass(frozen=True, slots=True)
class _Fate:
    """Everything that happens to one request."""

    lose_request: bool
    lose_answer: bool
    duplicate: bool
    replay: bool
    corrupt_request: bool
    corrupt_answer: bool
    request_delay_s: float
    answer_delay_s: float
    source: random.Random


class FaultyTransport:
    """A `NodeTransport` between a caller and `inner` that injects `faults`.

    Parameters
    ----------
    inner : NodeTransport
        The port that really reaches the nodes.
    faults : Faults
        What may happen.
    seed : int
        Decides what does happen.
    """

    def __init__(self, inner: NodeTransport, faults: Faults, seed: int) -> None:
        self._inner = inner
        self._faults = faults
        self._seed = seed
        self._steps: dict[NodeId, int] = {}
        self._dead: set[NodeId] = set()
        self.injected: dict[str, int] = {}

    async def nodes(self) -> Sequence[NodeId]:
        """Name the nodes that have not crashed and are not away."""
        return [
            node
            for node in await self._inner.nodes()
            if node not in self._dead and not self._away(node)
        ]

    async def ask(
        self, requests: Sequence[Request], *, timeout_s: float
    ) -> AsyncGenerator[Answer, None]:
        """Ask through the faults (see `NodeTransport.ask`)."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        inbox = Inbox(requests)
        tasks = [
            asyncio.create_task(self._carry(request, inbox, timeout_s))
            for request in inbox.requests.values()
        ]
        try:
            while (answer := await inbox.next_before(deadline)) is not None:
                yield answer
        finally:
            inbox.close()
            for task in tasks:
                task.cancel()
            if tasks:
                await asyncio.wait(tasks)
        for (
            task
        ) in tasks:  # a bug of an inner transport must not pass for a lost message
            if not task.cancelled() and (error := task.exception()):
                raise error

    async def _carry(self, request: Request, inbox: Inbox, timeout_s: float) -> None:
        """Take one request to its node and back, through its fate."""
        fate = self._fate(request)
        if fate.request_delay_s or fate.answer_delay_s:
            self._count("delay")
        crash = self._crash(request.node_id)
        await asyncio.sleep(fate.request_delay_s)
        await self._until_back(request.node_id)
        if crash is _Crash.BEFORE_WORK or fate.lose_request:
            self._count("crash" if crash is _Crash.BEFORE_WORK else "lose_request")
            return
        sent = [request]
        if fate.corrupt_request:
            self._count("corrupt_request")
            sent = [request._replace(body=corrupted(request.body, fate.source))]
        if fate.replay:
            # The same message under another id, as an attacker on the way would do it.
            self._count("replay")
            sent.append(sent[0]._replace(request_id=request.request_id + "~replayed"))
            fate.source.shuffle(sent)
        if fate.duplicate:
            self._count("duplicate")
            sent = sent * 2
        async with asyncio.TaskGroup() as group:
            for copy in sent:
                group.create_task(self._through(copy, fate, crash, inbox, timeout_s))

    async def _through(
        self,
        request: Request,
        fate: _Fate,
        crash: _Crash,
        inbox: Inbox,
        timeout_s: float,
    ) -> None:
        async with aclosing(self._inner.ask([request], timeout_s=timeout_s)) as answers:
            async for answer in answers:
                await asyncio.sleep(fate.answer_delay_s)
                await self._until_back(request.node_id)
                if crash is _Crash.AFTER_WORK or fate.lose_answer:
                    self._count(
                        "crash" if crash is _Crash.AFTER_WORK else "lose_answer"
                    )
                    continue
                if fate.corrupt_answer and answer.failure is None:
                    self._count("corrupt_answer")
                    answer = answer._replace(body=corrupted(answer.body, fate.source))
                inbox.deliver(answer)

    def _fate(self, request: Request) -> _Fate:
        source = random.Random(f"{self._seed} {request.node_id} {request.request_id}")
        faults = self._faults

        def happens(probability: float) -> bool:
            return source.random() < probability

        delays = [
            source.random() * faults.delay_s if happens(faults.delay) else 0.0
            for _ in range(2)
        ]
        return _Fate(
            lose_request=happens(faults.lose_request),
            lose_answer=happens(faults.lose_answer),
            duplicate=happens(faults.duplicate),
            replay=happens(faults.replay),
            corrupt_request=happens(faults.corrupt_request),
            corrupt_answer=happens(faults.corrupt_answer),
            request_delay_s=delays[0],
            answer_delay_s=delays[1],
            source=source,
        )

    def _crash(self, node_id: NodeId) -> _Crash:
        """Count a step of a node; say whether it dies at it, or is dead."""
        if node_id in self._dead:
            return _Crash.BEFORE_WORK
        step = self._steps.get(node_id, 0)
        self._steps[node_id] = step + 1
        source = random.Random(f"{self._seed} {node_id}")
        dies = source.random() < self._faults.crash
        if not dies or step != source.randrange(self._faults.crash_steps):
            return _Crash.NEVER
        self._dead.add(node_id)
        return source.choice((_Crash.BEFORE_WORK, _Crash.AFTER_WORK))

    async def _until_back(self, node_id: NodeId) -> None:
        if self._away(node_id):
            self._count("flap")
        while self._away(node_id):
            piece_s = self._faults.flap_s
            # A little beyond the boundary: rounding must not leave us before it.
            rest_s = 1.001 * piece_s - asyncio.get_running_loop().time() % piece_s
            await asyncio.sleep(rest_s)

    def _away(self, node_id: NodeId) -> bool:
        if not self._faults.flap:
            return False
        piece = asyncio.get_running_loop().time() // self._faults.flap_s
        source = random.Random(f"{self._seed} {node_id} {piece}")
        return source.random() < self._faults.flap

    def _count(self, fault: str) -> None:
        self.injected[fault] = self.injected.get(fault, 0) + 1


def corrupted(body: bytes, source: random.Random) -> bytes:
    """Damage a message: flip a bit, cut it, lengthen it, or replace it."""
    kind = source.randrange(4)
    if kind == 0 and body:
        position = source.randrange(len(body))
        flipped = body[position] ^ (1 << source.randrange(8))
        return body[:position] + bytes([flipped]) + body[position + 1 :]
    if kind == 1 and body:
        return body[: source.randrange(len(body))]
    if kind == 2:
        return body + source.randbytes(source.randint(1, 40))
    return source.randbytes(source.randint(0, 200))
