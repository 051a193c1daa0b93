"""A worker's two wires on loopback, over a real store."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from prometheus_client import CollectorRegistry

from tests.support.seat_server import SeatServer
from tests.support.seated_sums import SeatedRun
from wallflower.serve.gate import CallerGate, VisitorLimits, read_proxies
from wallflower.serve.grpc_wire import GrpcWire
from wallflower.serve.http_protocol import server_config
from wallflower.serve.http_wire import HttpWire
from wallflower.serve.polls import Polls, VisitorMetrics

SHOP = "https://shop.example"


@dataclass
class Wires:
    """A worker in this process: where it listens, and what it knows."""

    server: SeatServer
    gate: CallerGate
    registry: CollectorRegistry
    http_port: int
    grpc_port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.http_port}"

    @contextlib.asynccontextmanager
    async def client(self, **options: Any) -> AsyncIterator[httpx.AsyncClient]:
        async with httpx.AsyncClient(base_url=self.url, timeout=30, **options) as made:
            yield made

    async def connect(
        self, source: str = "127.0.0.1"
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(
            "127.0.0.1", self.http_port, local_addr=(source, 0)
        )


OpenWires = Callable[..., contextlib.AbstractAsyncContextManager[Wires]]


@functools.cache
def seated_run(admission: str) -> SeatedRun:
    return SeatedRun(admission, lying=admission != "open")


@pytest.fixture
def admission() -> str:
    return "open"


@pytest.fixture
def store_url() -> str:
    """The address of a database; empty for SQLite."""
    return ""


@pytest.fixture
def seat_server(tmp_path: Path, admission: str, store_url: str) -> Iterator[SeatServer]:
    run = seated_run(admission)
    server = SeatServer(tmp_path / "run", run, store=store_url)
    server.open_round(arms=1 if admission == "open" else 2)
    yield server
    server.close()


@pytest.fixture
def open_wires(seat_server: SeatServer) -> OpenWires:
    @contextlib.asynccontextmanager
    async def opened(
        limits: VisitorLimits | None = None, proxies: tuple[str, ...] = ()
    ) -> AsyncIterator[Wires]:
        limits, registry = limits or VisitorLimits(), CollectorRegistry()
        # Time stands still: what a network used up does not come back.
        gate = CallerGate(limits, read_proxies(proxies), lambda: 0.0)
        metrics = VisitorMetrics(registry)
        polls = Polls(seat_server.worker(), metrics, limits.most_waiting)

        async def ready() -> bool:
            return True

        app = HttpWire(polls, gate, [SHOP], ready).app()
        server = uvicorn.Server(server_config(app, gate))
        grpc_wire = GrpcWire(polls, gate, None)
        grpc_port = await grpc_wire.open("127.0.0.1:0")
        with socket.create_server(("127.0.0.1", 0)) as listener:
            serving = asyncio.create_task(server.serve([listener]))
            try:
                port = listener.getsockname()[1]
                yield Wires(seat_server, gate, registry, port, grpc_port)
            finally:
                server.should_exit = True
                await serving
                await grpc_wire.close()

    return opened
