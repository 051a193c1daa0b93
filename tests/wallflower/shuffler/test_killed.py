"""The shuffler's process killed in every phase: nothing twice, nothing left lying."""

from __future__ import annotations

import os
import signal
from asyncio.subprocess import Process
from pathlib import Path

import grpc

from tests.support.shuffled_sums import (
    ShuffledCohort,
    finished,
    shuffled_spec,
    started,
)
from tests.wallflower.shuffler.test_service import asked, bearer
from wallflower.protocol.secure_sum.context import unwrap
from wallflower.protocol.secure_sum.session import SecureSum, Void
from wallflower.protocol.secure_sum.shuffle.plan import unnamed_info
from wallflower.protocol.secure_sum.shuffle.seals import HYBRID, OpeningKey
from wallflower.protocol.wire.shuffle_pb2 import (
    Chunk,
    ReleaseAnswer,
    ReleaseRequest,
)
from wallflower.shuffler.service import SERVICE
from wallflower.strategy.transport.shuffler import ShufflerPlace

# Run in the process before anything else: it ends when a cohort was just written down.
ENDS_AFTER_THE_CLAIM = """
import os, signal
from wallflower.shuffler.home import ReleasedCohorts
claim = ReleasedCohorts.claim
def claim_and_end(self, context):
    claim(self, context)
    os.kill(os.getpid(), signal.SIGKILL)
ReleasedCohorts.claim = claim_and_end
"""


def cohort_at(place: ShufflerPlace) -> ShuffledCohort:
    return ShuffledCohort(shuffled_spec(mechanism="dist-dp"), place=place)


async def killed(process: Process) -> None:
    os.kill(process.pid, signal.SIGKILL)
    await process.wait()


async def stopped(process: Process) -> None:
    process.send_signal(signal.SIGTERM)
    assert await process.wait() == 0


def is_given(home: Path) -> int:
    return len(list((home / "released").iterdir()))


def leaves_nothing(home: Path, cohort: ShuffledCohort, request: bytes) -> None:
    """Look in all files for any part of what nodes sent, sealed or opened."""
    lying = b"".join(p.read_bytes() for p in home.rglob("*") if p.is_file())
    key = OpeningKey(HYBRID, (home / "shuffler.key").read_bytes())
    release = ReleaseRequest.FromString(request)
    context = unwrap(cohort.answers["node-00000"]).context
    place = unnamed_info(context, release.sealing_key)
    parts = [*release.unnamed, *(key.open(batch, place) for batch in release.unnamed)]
    assert parts
    for part in parts:
        assert not any(part[i : i + 16] in lying for i in range(0, len(part), 16))


async def test_killed_between_claim_and_release_no_shuffled_batch_is_ever_given(
    tmp_path: Path,
) -> None:
    process, place = await started(tmp_path, ENDS_AFTER_THE_CLAIM)
    cohort = cohort_at(place)
    server, request = cohort.submitted()
    assert isinstance(request, bytes)
    answer = await asked(place, request)
    assert answer.failure == "shuffler-unavailable"
    assert await process.wait() == -signal.SIGKILL
    assert is_given(tmp_path) == 1
    leaves_nothing(tmp_path, cohort, request)
    again, place = await started(tmp_path)
    try:
        body = (await asked(place, request)).body
        assert "released before" in ReleaseAnswer.FromString(body).refusal
        assert isinstance(finished(server, body), Void)
    finally:
        await stopped(again)


async def test_killed_after_the_release_it_gives_no_second_shuffled_batch(
    tmp_path: Path,
) -> None:
    process, place = await started(tmp_path)
    cohort = cohort_at(place)
    server, request = cohort.submitted()
    assert isinstance(request, bytes)
    body = (await asked(place, request)).body
    await killed(process)
    leaves_nothing(tmp_path, cohort, request)
    again, place = await started(tmp_path)
    try:
        second = ReleaseAnswer.FromString((await asked(place, request)).body)
        assert "released before" in second.refusal
        assert not second.messages
    finally:
        await stopped(again)
    outcome = finished(server, body)
    assert isinstance(outcome, SecureSum)
    assert outcome.total == sum(cohort.values.values())


async def test_killed_while_the_server_hands_over_it_claims_nothing_and_can_go_on(
    tmp_path: Path,
) -> None:
    process, place = await started(tmp_path)
    cohort = cohort_at(place)
    server, request = cohort.submitted()
    assert isinstance(request, bytes)
    credentials = grpc.ssl_channel_credentials(place.files.authority)
    async with grpc.aio.secure_channel(place.address, credentials) as channel:
        call = channel.stream_stream(
            f"/{SERVICE}/Release",
            request_serializer=Chunk.SerializeToString,
            response_deserializer=Chunk.FromString,
        )(None, metadata=bearer(place))
        await call.write(Chunk(part=request[:1000]))
        await killed(process)
        assert await call.code() == grpc.StatusCode.UNAVAILABLE
    assert is_given(tmp_path) == 0
    leaves_nothing(tmp_path, cohort, request)
    again, place = await started(tmp_path)
    try:
        outcome = finished(server, (await asked(place, request)).body)
        assert isinstance(outcome, SecureSum)
    finally:
        await stopped(again)
