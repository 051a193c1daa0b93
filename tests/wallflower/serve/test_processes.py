"""`wallflower serve` as processes: they share a socket and keep nothing."""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil
import pytest
from typer.testing import CliRunner

from tests.strategy.transport.grpc.test_descriptors import WITHOUT_THE_RIGHT
from tests.support.run_fixtures import command, environment
from tests.support.seat_server import SeatServer
from tests.support.seated_sums import Person, SeatedRun
from wallflower.cli import command_line
from wallflower.clients.transport.visitor_calls import poll_by_grpc
from wallflower.listening.descriptors import RESERVED
from wallflower.protocol.errors import InputError, JournalError, UnavailableError
from wallflower.protocol.wire.visitors_pb2 import VisitorPoll, VisitorReply
from wallflower.serve.gate import VisitorLimits
from wallflower.serve.http_wire import POLL_PATH
from wallflower.serve.setup import check_copy

PROTO = {"content-type": "application/proto"}


@dataclass
class Served:
    process: asyncio.subprocess.Process
    url: str
    grpc: str
    metrics: str

    def workers(self) -> list[psutil.Process]:
        children = psutil.Process(self.process.pid).children()
        return [one for one in children if "wallflower.serve.worker" in one.cmdline()]

    async def poll(self, poll: VisitorPoll) -> VisitorReply:
        """Poll until there is a reply, as a real client does."""
        async with httpx.AsyncClient(timeout=30) as client:
            while True:
                with contextlib.suppress(httpx.TransportError):
                    reply = await client.post(
                        self.url + POLL_PATH,
                        content=poll.SerializeToString(),
                        headers=PROTO,
                    )
                    return VisitorReply.FromString(reply.content)
                await asyncio.sleep(0.02)


@contextlib.asynccontextmanager
async def served(run_dir: Path, workers: int) -> AsyncIterator[Served]:
    process = await asyncio.create_subprocess_exec(
        *command("serve", run_dir, "--workers", str(workers), "--port", "0"),
        "--no-orchestrator",
        *("--grpc-port", "0", "--metrics", "127.0.0.1:0"),
        env=environment(),
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        said = (await process.stdout.readline()).decode()
        found = re.match(r"(http://\S+), gRPC at (\S+), metrics at (\S+)$", said)
        assert found is not None, said
        yield Served(process, *found.groups())
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


@pytest.mark.slow  # starts four processes, each of which imports gRPC and numpy
async def test_workers_serve_die_are_replaced_and_end_in_order(tmp_path: Path) -> None:
    server = SeatServer(tmp_path / "run", SeatedRun("invited", lying=True, seats=30))
    server.open_round()
    people = [server.run.person() for _ in range(20)]

    async def take_part(served: Served, person: Person) -> str:
        seat = (await served.poll(person.arriving())).seat
        body = server.run.answer(person, seat.request)
        reply = await served.poll(person.answering(body))
        return str(reply.WhichOneof("kind"))

    async with served(server.run_dir, workers=2) as serving:
        assert await take_part(serving, people[0]) == "taken"
        async with poll_by_grpc(serving.grpc) as poll:
            body = people[1].arriving().SerializeToString()
            seat = VisitorReply.FromString(await poll(body)).seat
            assert people[1].name.encode() in seat.request
        async with asyncio.TaskGroup() as group:
            taking = [
                group.create_task(take_part(serving, person)) for person in people[2:]
            ]
            for victim in serving.workers():
                victim.send_signal(signal.SIGKILL)
        assert {task.result() for task in taking} == {"taken"}
        async with httpx.AsyncClient() as client:
            text = (await client.get(f"http://{serving.metrics}/metrics")).text
            assert 'wallflower_visitor_polls_total{event="answer",reason=""}' in text
        serving.process.send_signal(signal.SIGTERM)
        assert await serving.process.wait() == 0
    assert len(server.stored("cohort-0")) == 19
    server.close()


@pytest.mark.slow  # starts three processes
async def test_workers_end_when_their_parent_is_killed(tmp_path: Path) -> None:
    server = SeatServer(tmp_path / "run", SeatedRun())
    async with served(server.run_dir, workers=2) as serving:
        await serving.poll(server.run.person().arriving())
        workers = serving.workers()
        serving.process.send_signal(signal.SIGKILL)
        await serving.process.wait()
        gone, alive = await asyncio.to_thread(psutil.wait_procs, workers, 30)
        assert len(gone) == 2, alive
    server.close()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--host", "0.0.0.0"], "who brings TLS"),
        (["--proxy", "shop.example"], "an address such as"),
        (["--origin", "shop.example"], "https://HOST"),
        (["--certificate", "x.crt"], "both"),
    ],
)
def test_what_would_serve_people_badly_is_refused(
    tmp_path: Path, words: list[str], said: str
) -> None:
    server = SeatServer(tmp_path / "run", SeatedRun())
    server.close()
    with pytest.raises(InputError, match=said):
        serve(str(server.run_dir), *words)


def test_a_port_in_use_is_named_alone(tmp_path: Path) -> None:
    server = SeatServer(tmp_path / "run", SeatedRun())
    server.close()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = f"port {port} \\(Address already in use"
        with pytest.raises(UnavailableError, match=said):
            serve(str(server.run_dir), "--no-orchestrator", "--port", str(port))


def test_a_pointer_alone_is_not_orchestrated(tmp_path: Path) -> None:
    (tmp_path / "store.toml").touch()
    with pytest.raises(InputError, match="copy of its whole directory"):
        check_copy(tmp_path)
    (tmp_path / "run-token.secret").touch()
    check_copy(tmp_path)


def test_a_run_that_is_not_there_is_not_served(tmp_path: Path) -> None:
    with pytest.raises(JournalError):
        serve(str(tmp_path / "nothing"))


MANY, FEW = 9_000, 1_000
ROOM = f"""
import resource
from wallflower.serve.worker import WorkerSetup, limits_with_room
for soft, hard in ((300, {MANY}), (300, {FEW})):
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    limits = limits_with_room(WorkerSetup("run", 3, grpc="127.0.0.1:0"))
    print(limits.most_connections, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""


@pytest.mark.slow  # a process that imports all of a worker
def test_a_worker_takes_no_more_connections_than_it_has_descriptors_for() -> None:
    """Else the last descriptor is a stranger's, however the places are shared."""
    said = subprocess.run(
        [*WITHOUT_THE_RIGHT, sys.executable, "-c", ROOM],
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    ).stdout
    [enough, fewer] = [tuple(map(int, line.split())) for line in said.splitlines()]
    wanted = VisitorLimits().most_connections
    assert enough[0] == wanted
    assert 2 * wanted + RESERVED < enough[1] <= MANY
    assert 0 < 2 * fewer[0] <= FEW - RESERVED
    assert fewer[1] == FEW


def serve(*words: str) -> None:
    CliRunner().invoke(command_line(), ["serve", *words], catch_exceptions=False)
