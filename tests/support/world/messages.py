"""Faults of messages between the orchestrator and its port, until all is quiet."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace

from tests.support.faulty_transport import Faults, FaultyTransport
from tests.support.world.schedule import MESSAGE_FAULTS, Schedule
from wallflower.protocol.messages.port import Answer, NodeId, NodeTransport, Request


class MessageFaults:
    """Faults of messages, until everything is quiet."""

    def __init__(self, schedule: Schedule, injected: Counter[str]) -> None:
        shares = {f.kind: f.share for f in schedule.faults if f.kind in MESSAGE_FAULTS}
        self._faults = replace(Faults(delay_s=30.0), **shares)  # type: ignore[arg-type]
        self._schedule = schedule
        self._injected = injected

    def __call__(self, port: NodeTransport) -> NodeTransport:
        """Wrap a port, if there is anything to inject."""
        if self._faults == Faults(delay_s=30.0):
            return port
        return _UntilQuiet(port, self._faults, self._schedule, self._injected)


class _UntilQuiet:
    def __init__(
        self,
        port: NodeTransport,
        faults: Faults,
        plan: Schedule,
        injected: Counter[str],
    ) -> None:
        self._port = port
        self._faulty = FaultyTransport(port, faults, plan.seed)
        self._until = plan.quiet_at
        self._injected = injected

    async def nodes(self) -> Sequence[NodeId]:
        return await self._port.nodes()

    async def ask(
        self, requests: Sequence[Request], *, timeout_s: float
    ) -> AsyncGenerator[Answer, None]:
        quiet = asyncio.get_running_loop().time() > self._until
        port = self._port if quiet else self._faulty
        before = Counter(self._faulty.injected)
        stream = port.ask(requests, timeout_s=timeout_s)
        try:
            async with contextlib.aclosing(stream) as answers:
                async for answer in answers:
                    yield answer
        finally:
            self._injected.update(Counter(self._faulty.injected) - before)
