"""A gRPC server in a process of its own with honest nodes in another, for `strangers`.

A round asks every node three times, as the stages of a sum do, and waits for all.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from tests.support.grpc_fixtures import AUTHORITY, SERVER, House, connect_nodes
from tests.support.transport_contract import Echo, gather, request
from wallflower.protocol.identity.certificates import KeyPair
from wallflower.strategy.transport.grpc.admission import Admission, FirstUseKeys
from wallflower.strategy.transport.grpc.server import GrpcServer

_NODES = [f"node-{number:02d}" for number in range(16)]
_STAGES = 3
_ANSWER = bytes(1024)
_QUIET = {**os.environ, "GRPC_VERBOSITY": "NONE"}


@asynccontextmanager
async def grpc_server_under_siege() -> AsyncIterator[
    tuple[int, int, Callable[[], Awaitable[float]]]
]:
    """Return a gRPC server's port, its process and how to play a round at it."""
    pair = SERVER.certificate.decode(), SERVER.private_key.decode()
    async with _child("serve", *pair) as grpc_server:
        port = int(await _line(grpc_server))
        async with _child("connect", str(port), AUTHORITY.certificate.decode()):

            async def play() -> float:
                assert grpc_server.stdin is not None
                grpc_server.stdin.write(b"\n")
                return float(await _line(grpc_server))

            await play()
            yield port, grpc_server.pid, play


@asynccontextmanager
async def _child(*arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "benchmarks.strangers_grpc",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        cwd=Path(__file__).parents[1],
        env=_QUIET,
    )
    assert process.stdin is not None
    process.stdin.write(json.dumps(arguments).encode() + b"\n")
    try:
        yield process
    finally:
        process.stdin.close()
        await process.wait()


async def _line(process: asyncio.subprocess.Process) -> bytes:
    assert process.stdout is not None
    async with asyncio.timeout(120):
        return await process.stdout.readline()


async def _serve(certificate: str, private_key: str) -> None:
    house = House(server=KeyPair(certificate.encode(), private_key.encode()))
    grpc_server = GrpcServer(Admission(house.tokens, FirstUseKeys()), house.server)
    print(await grpc_server.open("127.0.0.1:0"), flush=True)
    number = 0
    while await asyncio.to_thread(sys.stdin.readline):
        await grpc_server.wait_for(_NODES, timeout_s=60)
        began = time.perf_counter()
        for _ in range(_STAGES):
            number += 1
            asked = [request(node, f"r{number}", _ANSWER) for node in _NODES]
            answers = await gather(grpc_server, *asked)
            assert all(answer.failure is None for answer in answers)
        print(time.perf_counter() - began, flush=True)
    await grpc_server.close("finished")


async def _connect(port: str, authority: str) -> None:
    house = House(authority=KeyPair(authority.encode(), b""))
    async with connect_nodes(house, int(port), {node: Echo() for node in _NODES}):
        await asyncio.to_thread(sys.stdin.readline)


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    task, *values = json.loads(sys.stdin.readline())
    asyncio.run({"serve": _serve, "connect": _connect}[task](*values))
