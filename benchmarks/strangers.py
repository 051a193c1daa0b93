"""``make bench-strangers``: what strangers hold, and what honest people notice of them.

Twenty hostile connections, each from a network of its own (addresses of 127.0.0.0/8)
and without token or certificate, lay siege to a server: each of server, shuffler and
live page, in a process of its own. Printed are the most memory it had beyond the quiet
one, and how long an honest round took, quiet and under siege. A round is three
questions to sixteen nodes, the release of a cohort of five, a look at the
page.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from benchmarks.strangers_grpc import grpc_server_under_siege
from tests.support.half_requests import BEGINNING
from tests.support.run_fixtures import command, environment, write
from tests.support.shuffled_sums import ShuffledCohort, shuffled_spec, started
from tests.support.siege import most_memory
from tests.wallflower.shuffler.test_service import asked

_MIB = 2**20
_QUIET_ROUNDS = 40
_HEALTH = "/grpc.health.v1.Health/Check,/grpc.health.v1.Health/Watch"
_GRPC = f"/wallflower.v1.NodeService/Poll,/wallflower.v1.NodeService/Connect,{_HEALTH}"
_SHUFFLER = f"/wallflower.v1.Shuffler/Release,{_HEALTH}"
Round = Callable[[], Awaitable[float]]


@dataclass(frozen=True, slots=True)
class Target:
    """A server under siege.

    Attributes
    ----------
    port, pid : where it listens, and its process.
    paths : the calls that strangers begin; empty: half requests to a page.
    play : plays an honest round; gives its seconds.
    """

    port: int
    pid: int
    paths: str
    play: Round


@asynccontextmanager
async def _grpc_server() -> AsyncIterator[Target]:
    async with grpc_server_under_siege() as (port, pid, play):
        yield Target(port, pid, _GRPC, play)


@asynccontextmanager
async def _shuffler() -> AsyncIterator[Target]:
    with tempfile.TemporaryDirectory() as folder:
        quiet = asyncio.subprocess.DEVNULL
        process, place = await started(Path(folder), log=quiet)
        number = 0

        async def play() -> float:
            nonlocal number
            number += 1
            spec = shuffled_spec(mechanism="dist-dp", cohort_id=f"cohort-{number}")
            cohort = ShuffledCohort(spec, place=place)
            _, request = cohort.submitted()
            assert isinstance(request, bytes)
            began = time.perf_counter()
            answer = await asked(place, request)
            assert answer.failure is None
            return time.perf_counter() - began

        try:
            port = int(place.address.rpartition(":")[2])
            yield Target(port, process.pid, _SHUFFLER, play)
        finally:
            process.terminate()
            await process.wait()


@asynccontextmanager
async def _page() -> AsyncIterator[Target]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        words = command("run", write(folder), "--run-dir", folder / "run")
        await asyncio.to_thread(
            lambda: subprocess.run(
                words, env=environment(), check=True, capture_output=True
            )
        )
        process = await asyncio.create_subprocess_exec(
            *map(str, command("watch", folder / "run", "--port", "0")),
            env=environment(),
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None
        line = (await process.stdout.readline()).decode()
        (address,) = (word for word in line.split() if word.startswith("http"))
        port = urlsplit(address).port
        assert port is not None

        async def play() -> float:
            began = time.perf_counter()
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            line = BEGINNING.replace(b"GET / ", b"GET /runs/1/ ")
            writer.write(line + b"Connection: close\r\n\r\n")
            assert b" 200 " in await reader.read()
            writer.close()
            return time.perf_counter() - began

        try:
            yield Target(port, process.pid, "", play)
        finally:
            process.terminate()
            await process.wait()


_TARGETS = {"server": _grpc_server, "shuffler": _shuffler, "page": _page}


@asynccontextmanager
async def _strangers(target: Target, connections: int) -> AsyncIterator[None]:
    """Let strangers loose, in a process that takes only what others leave it."""
    process = await asyncio.create_subprocess_exec(
        *("nice", "-n", "19", sys.executable, "-m", "benchmarks.strangers_siege"),
        *(str(target.port), str(connections), target.paths),
        stdin=asyncio.subprocess.PIPE,
        cwd=Path(__file__).parents[1],
    )
    try:
        yield
    finally:
        assert process.stdin is not None
        process.stdin.close()
        await process.wait()


async def measure(target: Target, connections: int, seconds: float) -> str:
    """Play quiet rounds, then besieged ones for so many seconds; say what was seen."""
    quiet = [await target.play() for _ in range(_QUIET_ROUNDS)]
    before = await most_memory(target.pid, 0.5)
    noisy: list[float] = []
    async with _strangers(target, connections):
        await asyncio.sleep(2)
        watching = asyncio.create_task(most_memory(target.pid, seconds))
        while not watching.done():
            noisy.append(await target.play())
            await asyncio.sleep(0.1)
        held = await watching - before
    calm, loud = statistics.median(quiet), statistics.median(noisy)
    return (
        f"held {held / _MIB:5.1f} MiB; a round {calm * 1e3:.1f} ms quiet, "
        f"{loud * 1e3:.1f} ms besieged ({loud / calm:.2f} times)"
    )


async def main(connections: int, seconds: float, only: str) -> None:
    """Measure every target."""
    for name, opened in _TARGETS.items():
        if only in ("", name):
            async with opened() as target:
                found = await measure(target, connections, seconds)
            print(f"{name:9} {found}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--connections", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--only", default="", choices=["", *_TARGETS])
    given = parser.parse_args()
    asyncio.run(main(given.connections, given.seconds, given.only))
