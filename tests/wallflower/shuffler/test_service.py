"""The shuffler on the network: who is let in, how much, and what a crash leaves."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.support.shuffled_sums import (
    KEY,
    ShuffledCohort,
    finished,
    shuffled_spec,
)
from wallflower.protocol.errors import UnavailableError
from wallflower.protocol.messages.port import Answer, Request
from wallflower.protocol.secure_sum.session import SecureSum
from wallflower.protocol.secure_sum.shuffle.plan import SHUFFLER
from wallflower.protocol.wire.shuffle_pb2 import Chunk
from wallflower.shuffler.home import open_home
from wallflower.shuffler.service import SERVICE, Limits, Service
from wallflower.shuffler.shuffled_batch import Shuffler
from wallflower.strategy.transport import shuffler
from wallflower.strategy.transport.memory import MemoryTransport
from wallflower.strategy.transport.shuffler import (
    ShufflerFiles,
    ShufflerPlace,
    shuffled,
)


@pytest.fixture(scope="module")
def request_body() -> bytes:
    _, request = ShuffledCohort(shuffled_spec()).submitted()
    assert isinstance(request, bytes)
    return request


@asynccontextmanager
async def serving(
    folder: Path, limits: Limits | None = None
) -> AsyncIterator[tuple[ShufflerPlace, Service]]:
    home = open_home(folder, ["127.0.0.1"])
    releasing = Shuffler(KEY, home.released, None)
    service = Service(releasing, home.tls, home.token, limits or Limits())
    port = await service.open("127.0.0.1:0")
    try:
        files = ShufflerFiles.read(folder / "operator")
        files = ShufflerFiles(KEY.public, files.authority, files.token)
        yield ShufflerPlace(f"127.0.0.1:{port}", files), service
    finally:
        await service.close()


def bearer(place: ShufflerPlace) -> tuple[tuple[str, str]]:
    return (("authorization", "Bearer " + place.files.token.decode()),)


async def asked(place: ShufflerPlace, body: bytes, timeout_s: float = 60) -> Answer:
    async with shuffled(MemoryTransport({}), place) as port:
        request = Request(SHUFFLER, "cohort-1/release", body)
        answers = [a async for a in port.ask([request], timeout_s=timeout_s)]
    assert len(answers) == 1
    return answers[0]


async def test_a_shuffled_batch_comes_back_over_tls(tmp_path: Path) -> None:
    cohort = ShuffledCohort(shuffled_spec())
    server, request = cohort.submitted()
    assert isinstance(request, bytes)
    async with serving(tmp_path) as (place, _):
        answer = await asked(place, request)
    outcome = finished(server, answer.body)
    assert isinstance(outcome, SecureSum)
    assert outcome.total == sum(cohort.values.values())


async def test_who_does_not_show_the_token_is_not_let_in(
    tmp_path: Path, request_body: bytes
) -> None:
    async with serving(tmp_path) as (place, service):
        files = ShufflerFiles(place.files.public_key, place.files.authority, b"guess")
        answer = await asked(ShufflerPlace(place.address, files), request_body)
        assert answer.failure == "shuffler-unauthenticated"
        labels = {"why": "token"}
        name = "wallflower_shuffler_refused_calls_total"
        assert service.registry.get_sample_value(name, labels) == 1
    assert not list((tmp_path / "released").iterdir())


async def test_another_shufflers_certificate_is_not_believed(
    tmp_path: Path, request_body: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_home(tmp_path / "other", ["127.0.0.1"])
    other = ShufflerFiles.read(tmp_path / "other" / "operator")
    monkeypatch.setattr(shuffler, "_CONNECT_S", 1.0)
    async with serving(tmp_path / "own") as (place, _):
        with pytest.raises(UnavailableError, match="did not answer"):
            await asked(ShufflerPlace(place.address, other), request_body)


async def test_a_shuffler_that_is_gone_is_noticed_before_people_of_the_next_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(tmp_path) as (place, service):
        async with shuffled(MemoryTransport({}), place) as transport:
            assert list(await transport.nodes()) == []
            await service.close()
            monkeypatch.setattr(shuffler, "_CONNECT_S", 0.2)
            with pytest.raises(UnavailableError, match="did not answer"):
                await transport.nodes()


async def test_a_shuffler_that_cannot_be_reached_is_noticed_before_people_are_charged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shuffler, "_CONNECT_S", 0.2)
    async with serving(tmp_path) as (place, _):
        pass
    entered = False
    with pytest.raises(UnavailableError, match=re.escape(place.address)):
        async with shuffled(MemoryTransport({}), place):
            entered = True  # nodes would be asked from here on
    assert not entered


async def test_more_than_the_limit_is_refused_and_claims_nothing(
    tmp_path: Path, request_body: bytes
) -> None:
    limits = Limits(most_bytes=1000)
    async with serving(tmp_path, limits=limits) as (place, _):
        answer = await asked(place, request_body)
    assert answer.failure == "shuffler-resource-exhausted"
    assert not list((tmp_path / "released").iterdir())


async def test_more_cohorts_than_agreed_are_refused(
    tmp_path: Path, request_body: bytes
) -> None:
    limits = Limits(most_cohorts=0)
    async with serving(tmp_path, limits=limits) as (place, _):
        answer = await asked(place, request_body)
    assert answer.failure == "shuffler-resource-exhausted"


async def test_a_cohort_that_never_arrives_whole_is_given_up(tmp_path: Path) -> None:
    limits = Limits(collect_s=0.2)
    async with serving(tmp_path, limits=limits) as (place, _):
        credentials = grpc.ssl_channel_credentials(place.files.authority)
        async with grpc.aio.secure_channel(place.address, credentials) as channel:
            call = channel.stream_stream(
                f"/{SERVICE}/Release",
                request_serializer=Chunk.SerializeToString,
                response_deserializer=Chunk.FromString,
            )(None, metadata=bearer(place))
            await call.write(Chunk(part=b"a beginning"))
            assert await call.code() == grpc.StatusCode.DEADLINE_EXCEEDED


async def test_health_is_told_to_everybody(tmp_path: Path) -> None:
    async with serving(tmp_path) as (place, _):
        credentials = grpc.ssl_channel_credentials(place.files.authority)
        async with grpc.aio.secure_channel(place.address, credentials) as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            answer = await stub.Check(health_pb2.HealthCheckRequest())
    assert answer.status == health_pb2.HealthCheckResponse.SERVING


async def test_nodes_have_nothing_to_call_there(tmp_path: Path) -> None:
    """Only the operator fills the shuffler's memory, whatever a node sends."""
    async with serving(tmp_path) as (place, _):
        credentials = grpc.ssl_channel_credentials(place.files.authority)
        async with grpc.aio.secure_channel(place.address, credentials) as channel:
            call = channel.unary_unary(f"/{SERVICE}/Deposit", None, None)
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call(b"a batch")
    assert caught.value.code() == grpc.StatusCode.UNIMPLEMENTED


def test_a_folder_whose_making_was_cut_short_is_made_again(tmp_path: Path) -> None:
    open_home(tmp_path, ["127.0.0.1"])
    (tmp_path / "shuffler.key").unlink()
    home = open_home(tmp_path, ["127.0.0.1"])
    files = ShufflerFiles.read(tmp_path / "operator")
    assert files.fingerprint == home.fingerprint
    assert open_home(tmp_path, []).fingerprint == home.fingerprint


def test_private_files_are_their_owners_alone(tmp_path: Path) -> None:
    open_home(tmp_path, ["127.0.0.1"])
    for name in ("shuffler.key", "tls.key", "operator/token"):
        assert (tmp_path / name).stat().st_mode & 0o077 == 0
