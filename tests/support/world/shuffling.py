"""The shuffler of a world: the real one as a process of its own, and watched.

A world hears when a deposit was taken, a cohort was written down as over and a heap
has left, so that processes can die at these very moments; and how many heaps of each
cohort were made.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from tests.support.world.population import trust_of
from tests.support.world.processes import PROCESS
from tests.support.world.schedule import SHUFFLE, SHUFFLER, Schedule
from wallflower.protocol.wire.shuffle_pb2 import Chunk, ReleaseAnswer, ReleaseRequest
from wallflower.shuffler.deposits import Deposits
from wallflower.shuffler.given import Given
from wallflower.shuffler.home import OPERATOR, Home, open_home
from wallflower.shuffler.service import Limits, Service
from wallflower.shuffler.shuffled_batch import Shuffler
from wallflower.strategy.transport.shuffler import ShufflerFiles, ShufflerPlace

_ADDRESS = "10.0.0.2:8444"
Tell = Callable[[str], None]


def place_of(schedule: Schedule, world: Path) -> ShufflerPlace | None:
    """Say where a world's shuffler is, if it has one; makes its keys."""
    if schedule.backend != SHUFFLE:
        return None
    home = world / SHUFFLER
    open_home(home, ["10.0.0.2"])
    files = ShufflerFiles.read(home / OPERATOR)
    return ShufflerPlace(_ADDRESS, files, schedule.direct)


async def shuffle(
    schedule: Schedule, folder: Path, tell: Tell, heaps: Counter[str]
) -> None:
    """Be the shuffler, as `wallflower.shuffler.serve` does it, until the end."""
    home = open_home(folder, [])
    service = _service(schedule, home, _Given(folder / "given", tell), tell, heaps)
    await service.open(_ADDRESS)
    process = PROCESS.get()
    assert process is not None
    # Held by the process: what waits for something that nobody holds is thrown away.
    await process.own.setdefault("end", asyncio.Event()).wait()


def _service(
    schedule: Schedule, home: Home, given: Given, tell: Tell, heaps: Counter[str]
) -> Service:
    limits = Limits()
    deposits = _Deposits(home.key, given, home.token, limits.most_bytes)
    deposits.tell = tell
    shuffler = _Shuffler(home.key, given, trust_of(schedule), deposits)
    shuffler.heaps = heaps
    service = _Service(shuffler, home.tls, home.token, limits, deposits)
    service.tell = tell
    return service


class _Given(Given):
    def __init__(self, folder: Path, tell: Tell) -> None:
        super().__init__(folder)
        self._tell = tell

    def claim(self, context: bytes) -> bool:
        claimed = super().claim(context)
        self._tell("claim")
        return claimed


class _Deposits(Deposits):
    tell: Tell

    def put(self, raw: bytes, body: bytes) -> tuple[bytes, bytes | None]:
        taken = super().put(raw, body)
        self.tell("deposit")
        return taken


class _Shuffler(Shuffler):
    heaps: Counter[str]

    def release(self, body: bytes) -> bytes:
        answer = super().release(body)
        if ReleaseAnswer.FromString(answer).heap:
            self.heaps[ReleaseRequest.FromString(body).spec.cohort_id] += 1
        return answer


class _Service(Service):
    tell: Tell

    async def _release(
        self, chunks: AsyncIterator[Chunk], context: Any
    ) -> AsyncIterator[Chunk]:
        async for chunk in super()._release(chunks, context):
            yield chunk
        self.tell("heap")
