"""The shuffler of a world: the real one as a process of its own, and watched.

A world hears when a cohort was recorded as released and when its batch has left, so
that processes can die at these very moments; and how often each cohort was released.
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
from wallflower.shuffler.home import OPERATOR, Home, ReleasedCohorts, open_home
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
    return ShufflerPlace(_ADDRESS, files)


async def shuffle(
    schedule: Schedule, folder: Path, tell: Tell, shuffled_batches: Counter[str]
) -> None:
    """Be the shuffler, as `wallflower.shuffler.service` does it, until the end."""
    home = open_home(folder, [])
    released = _Released(folder / "released", tell)
    service = _service(schedule, home, released, tell, shuffled_batches)
    await service.open(_ADDRESS)
    process = PROCESS.get()
    assert process is not None
    # Held by the process: what waits for something that nobody holds is thrown away.
    await process.own.setdefault("end", asyncio.Event()).wait()


def _service(
    schedule: Schedule,
    home: Home,
    released: ReleasedCohorts,
    tell: Tell,
    shuffled_batches: Counter[str],
) -> Service:
    shuffler = _Shuffler(home.key, released, trust_of(schedule))
    shuffler.shuffled_batches = shuffled_batches
    service = _Service(shuffler, home.tls, home.token, Limits())
    service.tell = tell
    return service


class _Released(ReleasedCohorts):
    def __init__(self, folder: Path, tell: Tell) -> None:
        super().__init__(folder)
        self._tell = tell

    def claim(self, context: bytes) -> bool:
        claimed = super().claim(context)
        self._tell("claim")
        return claimed


class _Shuffler(Shuffler):
    shuffled_batches: Counter[str]

    def release(self, body: bytes) -> bytes:
        answer = super().release(body)
        if ReleaseAnswer.FromString(answer).messages:
            self.shuffled_batches[ReleaseRequest.FromString(body).spec.cohort_id] += 1
        return answer


class _Service(Service):
    tell: Tell

    async def _release(
        self, chunks: AsyncIterator[Chunk], context: Any
    ) -> AsyncIterator[Chunk]:
        async for chunk in super()._release(chunks, context):
            yield chunk
        self.tell("release")
