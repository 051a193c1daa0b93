"""A gRPC server and the limit on open files, in a process of its own with a real limit.

Root may raise a hard limit, so these processes give up that right first.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.grpc_fixtures import House
from tests.support.intruder import Intruder, channel_to, hello_of
from wallflower.listening.descriptors import RESERVED
from wallflower.protocol.identity.enrolment import NodeIdentity
from wallflower.strategy.transport.grpc import server

WITHOUT_THE_RIGHT = (
    ("setpriv", "--bounding-set", "-sys_resource") if os.geteuid() == 0 else ()
)


@contextmanager
def crowded_server(soft: int, hard: int, streams: int) -> Iterator[Any]:
    command = [sys.executable, "-m", "tests.support.crowded_server"]
    with subprocess.Popen(
        [*WITHOUT_THE_RIGHT, *command, str(soft), str(hard), str(streams)],
        cwd=Path(__file__).parents[4],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield process
        finally:
            process.stdin.close()


def first_line(process: Any) -> dict[str, Any]:
    said: dict[str, Any] = json.loads(process.stdout.readline())
    return said


def test_the_soft_limit_is_raised_to_what_the_streams_need() -> None:
    with crowded_server(soft=64, hard=4096, streams=1000) as process:
        said = first_line(process)
    assert 1000 + RESERVED < said["limit"] < 1000 + RESERVED + 64
    assert said["warned"] == []


def test_a_hard_limit_too_low_for_the_streams_is_said_at_the_start_with_numbers() -> (
    None
):
    with crowded_server(soft=64, hard=1024, streams=20_000) as process:
        said = first_line(process)
    [line] = said["warned"]
    assert "20,000 streams" in line
    assert "1,024" in line
    assert "LimitNOFILE" in line


def test_a_limit_with_no_room_for_two_nodes_is_an_error_with_numbers() -> None:
    with crowded_server(soft=64, hard=64, streams=20_000) as process:
        said = first_line(process)
    assert "may have 64: room for 0" in said["error"]


async def test_a_server_without_descriptors_left_refuses_by_name_and_serves_on() -> (
    None
):
    with crowded_server(64, RESERVED + 40, streams=20_000) as process:
        said = first_line(process)
        room = int(said["warned"][0].partition("room for ")[2].partition(".")[0])
        assert 2 < room < 40
        root = said["root"].encode()
        async with AsyncExitStack() as calls:
            inside = [
                Intruder(
                    await calls.enter_async_context(channel_to(said["port"], root))
                )
                for _ in range(room + 40)
            ]
            house = House()
            for number, one in enumerate(inside):
                node = NodeIdentity.generate(f"n{number}")
                one.say_hello(house, hello_of(house, node))
            endings = asyncio.as_completed([one.status() for one in inside])
            for ending in itertools.islice(endings, 40):
                assert await ending == ("RESOURCE_EXHAUSTED", "too-many-streams")
            [kept, *_] = [one for one in inside if not one.call.done()]
            await kept.hear()
            await kept.send(b"\xff")
            assert await kept.status() == ("INVALID_ARGUMENT", "malformed-message")
            for one in inside:
                one.call.cancel()


@pytest.mark.parametrize(("hosted", "streams"), [(0, 20_000), (450, 482)])
async def test_a_server_of_hosted_nodes_asks_for_no_more_descriptors_than_they_need(
    hosted: int, streams: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def note(wanted: int, hosted: int) -> int:
        asked.append((wanted, hosted))
        return wanted

    monkeypatch.setattr(server, "streams_allowed", note)
    house = House()
    opened = server.GrpcServer(house.admission(), house.server)
    await opened.open("127.0.0.1:0", hosted=hosted)
    await opened.close("finished")
    assert asked == [(streams, hosted)]
