"""Thousands of hostile calls against a gRPC server in its own process, watched from
outside.

``python -m tests.integration.grpc_abuse COUNT`` prints what was refused and how the
server's memory went; it fails if memory grows or an honest node is not served.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import json
import logging
import os
import secrets
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import psutil

from deploy.harness.processes import free_port
from tests.support.grpc_fixtures import House, connect_nodes
from tests.support.intruder import (
    Intruder,
    channel_to,
    good_token,
    hello_of,
    proof_of,
)
from tests.support.transport_contract import Echo, gather, request
from wallflower.protocol.identity.certificates import KeyPair
from wallflower.protocol.identity.enrolment import NodeIdentity
from wallflower.protocol.wire import node_service_pb2
from wallflower.strategy.transport.grpc.admission import Admission, EnrolledKeys
from wallflower.strategy.transport.grpc.server import GrpcServer
from wallflower.strategy.transport.grpc.settings import GrpcServerSettings

# Every call must reach the checks, so nobody is shut out for having failed before.
SETTINGS = GrpcServerSettings(
    refusals_per_s=10**6, refusals_burst=10**6, heartbeat_s=2.0
)
# Memory is looked at after these parts of the calls.
PARTS = (0.0, 0.25, 0.5, 0.75, 1.0)
# What gRPC's buffers may still grow by after the first half (five messages of 4 MiB at
# a time), and what may come and go among Python's own objects.
SLACK_BYTES = 24 * 2**20
SLACK_OBJECTS = 500


class Abuser:
    """Knows all ways to misuse a gRPC server; cycles through them."""

    def __init__(self, house: House, port: int) -> None:
        self._house = house
        self._port = port
        self._outsider = House().identity("a")
        self._insider = house.identity("insider")
        self._expired = house.identity("late", not_after=int(time.time()) - 5)
        self._recorded: tuple[node_service_pb2.Hello, node_service_pb2.Proof] | None = (
            None
        )
        self.statuses: Counter[str] = Counter()

    async def call(self, channel: grpc.aio.Channel, number: int) -> None:
        """Make one hostile call and note how it was refused."""
        if number % 97 == 0:
            await self._raw_garbage()
            return
        intruder = Intruder(channel)
        try:
            async with asyncio.timeout(60):
                await self._misbehave(intruder, number)
                code, reason = await intruder.status()
        except grpc.aio.AioRpcError as error:
            code, reason = error.code().name, str(error.details())
        finally:
            intruder.call.cancel()
        self.statuses[f"{code} {reason.partition(' ')[0]}"] += 1

    async def _misbehave(self, intruder: Intruder, number: int) -> None:
        house = self._house
        match number % 10:
            case 0:
                await intruder.authenticate(house, self._outsider)
            case 1:
                await intruder.authenticate(house, NodeIdentity.generate("a"))
            case 2:
                intruder.knock(secrets.token_bytes(200))
            case 3:
                await intruder.authenticate(house, self._insider, run_id="another-run")
            case 4:
                await self._replay(intruder)
            case 5:
                await intruder.authenticate(house, self._expired)
            case 6:
                await intruder.authenticate(
                    house, self._insider, certificate=b"x" * 9_000
                )
            case 7:
                # Into a session that is not ours: named as the honest node.
                token = good_token(house, "honest")
                await intruder.authenticate(
                    house, self._insider, token, node_id="honest"
                )
            case 8:
                token = good_token(house, "honest")
                await intruder.authenticate(house, self._insider, token)
            case _:
                size = SETTINGS.most_bytes + 1 if number % 200 == 199 else 5_000
                intruder.say_hello(house, hello_of(house, self._insider))
                await intruder.hear()
                await intruder.send(b"\x00" * size)

    async def _replay(self, intruder: Intruder) -> None:
        """Send a handshake that was recorded on another stream."""
        identity, token = self._insider, good_token(self._house, "insider")
        if self._recorded is None:
            hello = hello_of(self._house, identity, token)
            intruder.say_hello(self._house, hello, token)
            challenge = (await intruder.hear()).challenge
            self._recorded = hello, proof_of(hello, challenge, identity, token)
            await intruder.send(b"\xff")
            return
        hello, proof = self._recorded
        intruder.say_hello(self._house, hello, token)
        await intruder.hear()
        await intruder.say(proof=proof)

    async def _raw_garbage(self) -> None:
        """No TLS, no HTTP/2: bytes."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        writer.write(secrets.token_bytes(512))
        try:
            await writer.drain()
            writer.write_eof()
            async with asyncio.timeout(60):
                await reader.read()
        except (OSError, TimeoutError):
            pass
        writer.transport.abort()
        self.statuses["no TLS: connection closed"] += 1


class GrpcServerProcess:
    """The gRPC server under attack, in a child process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.pid = process.pid

    async def report(self) -> dict[str, Any]:
        """Return the state of the gRPC server after it has asked its honest node."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(b"\n")
        async with asyncio.timeout(60):
            line = await stdout.readline()
        report: dict[str, Any] = json.loads(line)
        memory = psutil.Process(self._process.pid).memory_info().rss
        return {**report, "rss": memory}


@asynccontextmanager
async def grpc_server_process(
    house: House,
) -> AsyncIterator[tuple[GrpcServerProcess, int]]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "server.crt").write_bytes(house.server.certificate)
        (folder / "server.key").write_bytes(house.server.private_key)
        port = free_port()
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.integration.grpc_abuse",
            "serve",
            str(folder),
            str(port),
            house.secret.hex(),
            house.enrolment.public_key.hex(),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            cwd=Path(__file__).parents[2],
            # gRPC itself reports every connection that is not TLS.
            env={**os.environ, "GRPC_VERBOSITY": "NONE"},
        )
        try:
            yield GrpcServerProcess(process), port
        finally:
            assert process.stdin is not None
            process.stdin.close()
            try:
                async with asyncio.timeout(60):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()


async def serve(folder: Path, port: int, secret: str, enrolment: str) -> None:
    """Be the gRPC server: for every line on standard input, ask the honest node and
    report.
    """
    logging.disable(logging.WARNING)
    house = House(secret=bytes.fromhex(secret))
    server = KeyPair(
        (folder / "server.crt").read_bytes(), (folder / "server.key").read_bytes()
    )
    admission = Admission(house.tokens, EnrolledKeys(bytes.fromhex(enrolment)))
    grpc_server = GrpcServer(admission, server, SETTINGS)
    await grpc_server.open(f"127.0.0.1:{port}")
    await grpc_server.wait_for(["honest"], timeout_s=60)
    number = 0
    while await asyncio.to_thread(sys.stdin.readline):
        number += 1
        [answer] = await gather(grpc_server, request("honest", f"ping-{number}"))
        stats = grpc_server.stats
        report = {
            "honest": answer.failure or "ok",
            "refused": dict(stats.refused),
            "handshake": stats.handshake,
            "connected": stats.connections,
            "tasks": len(asyncio.all_tasks()),
            "objects": await asyncio.to_thread(_living_objects),
        }
        print(json.dumps(report), flush=True)
    await grpc_server.close("finished")


def _living_objects() -> int:
    gc.collect()
    return len(gc.get_objects())


async def abuse(count: int, concurrency: int = 16) -> dict[str, Any]:
    """Make `count` hostile calls; give the reports and the statuses seen."""
    house = House()
    async with AsyncExitStack() as stack:
        grpc_server, port = await stack.enter_async_context(grpc_server_process(house))
        await stack.enter_async_context(connect_nodes(house, port, {"honest": Echo()}))
        await grpc_server.report()  # it is up and the honest node is connected
        channels = [
            await stack.enter_async_context(channel_to(port))
            for _ in range(concurrency)
        ]
        abuser = Abuser(house, port)

        async def storm(first: int, last: int) -> None:
            numbers = iter(range(first, last))

            async def one(channel: grpc.aio.Channel) -> None:
                for number in numbers:
                    await abuser.call(channel, number)

            async with asyncio.TaskGroup() as group:
                for channel in channels:
                    group.create_task(one(channel))

        reports = []
        edges = [round(count * part) for part in PARTS]
        for first, last in itertools.pairwise(edges):
            await storm(first, last)
            reports.append(await grpc_server.report())
    return {"reports": reports, "statuses": dict(abuser.statuses)}


def check(result: dict[str, Any], count: int) -> None:
    """Refused by name, unharmed, memory flat."""
    reports = result["reports"]
    assert all(report["honest"] == "ok" for report in reports), reports
    assert reports[-1]["connected"] == 1, "nobody but the honest node got in"
    assert reports[-1]["handshake"] == 0
    assert reports[-1]["tasks"] <= reports[0]["tasks"] + 2
    assert sum(result["statuses"].values()) == count
    allowed = (
        "PERMISSION_DENIED",
        "UNAUTHENTICATED",
        "INVALID_ARGUMENT",
        "FAILED_PRECONDITION",
        "RESOURCE_EXHAUSTED",
        "no TLS",
    )
    strange = [s for s in result["statuses"] if not s.startswith(allowed)]
    assert not strange, strange
    # The first half warms up: buffers, caches and the allocator find their size.
    growth = reports[-1]["rss"] - reports[1]["rss"]
    assert growth < SLACK_BYTES, f"memory grew by {growth / 2**20:.1f} MiB"
    objects = reports[-1]["objects"] - reports[1]["objects"]
    assert objects < SLACK_OBJECTS, f"{objects} more Python objects"


def main(count: int) -> None:
    """Run, print, check."""
    result = asyncio.run(abuse(count))
    for status, number in sorted(result["statuses"].items()):
        print(f"{number:>8}  {status}")
    memory = ", ".join(f"{report['rss'] / 2**20:.1f}" for report in result["reports"])
    objects = ", ".join(f"{report['objects']:,}" for report in result["reports"])
    print(f"{count} hostile calls; after each quarter of them the gRPC server's")
    print(f"memory was {memory} MiB, its living Python objects {objects}")
    check(result, count)


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        asyncio.run(serve(Path(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:6]))
    else:
        main(int(sys.argv[1]))
