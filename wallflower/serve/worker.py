"""One worker: ``python -m wallflower.serve.worker SETUP``; it keeps nothing of its own.

Whatever it knows is in the run's database. SIGTERM ends it in order: it takes no new
connections, answers what it has read, and goes. So does the end of its parent.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import FrameType

import uvicorn
from prometheus_client import REGISTRY

from wallflower.child import wait_for_parent_end
from wallflower.listening.descriptors import streams_allowed
from wallflower.protocol.errors import JournalError, UnavailableError, WallflowerError
from wallflower.protocol.files.logs import installed_from, log_context
from wallflower.serve.gate import CallerGate, VisitorLimits, read_proxies
from wallflower.serve.grpc_wire import GrpcWire
from wallflower.serve.http_protocol import server_config
from wallflower.serve.http_wire import HttpWire
from wallflower.serve.polls import Polls, VisitorMetrics
from wallflower.serve.setup import WorkerSetup, read_run
from wallflower.strategy.store.seat_store import SeatQueue, SeatStore
from wallflower.strategy.transport.visitors.handler import VisitorHandler


async def work(setup: WorkerSetup) -> None:
    """Serve until SIGTERM or the end of the parent."""
    run_dir = Path(setup.run_dir)
    run, limits = read_run(run_dir), limits_with_room(setup)
    with (
        log_context(run=run.run_id),
        SeatStore.open(run_dir) as store,
        socket.socket(fileno=setup.listener) as listener,
    ):
        seats = SeatQueue(store)

        async def ready() -> bool:
            try:
                await seats.read_cohort("")
            except (JournalError, UnavailableError):
                return False
            return not server.should_exit

        gate = CallerGate(limits, read_proxies(setup.proxies), time.monotonic)
        handler = VisitorHandler(run, seats)
        polls = Polls(handler, VisitorMetrics(REGISTRY), limits.most_waiting)
        app = HttpWire(polls, gate, setup.origins, ready).app()
        files = {"ssl_certfile": setup.certificate, "ssl_keyfile": setup.private_key}
        tls = files if setup.certificate else {}
        server = _Server(server_config(app, gate, **tls))
        wire = GrpcWire(polls, gate, setup.tls())
        if setup.grpc:
            await wire.open(setup.grpc)
        watching = asyncio.create_task(_end_with_parent(server))
        try:
            await server.serve([listener])
        finally:
            watching.cancel()
            await wire.close()


def limits_with_room(setup: WorkerSetup) -> VisitorLimits:
    """Return limits for which there are file descriptors; raise the process's own.

    Where there are fewer than connections, one network takes the last of them.
    """
    limits, wires = VisitorLimits(), 2 if setup.grpc else 1
    room = streams_allowed(wires * limits.most_connections)
    return replace(limits, most_connections=room // wires)


class _Server(uvicorn.Server):
    """Ends in order at the first signal, at once at the second."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Take a signal."""
        self.force_exit = self.should_exit
        self.should_exit = True


async def _end_with_parent(server: _Server) -> None:
    await wait_for_parent_end()
    server.should_exit = True


def main() -> int:
    """Run one worker; return its exit code."""
    with installed_from(os.environ):
        try:
            asyncio.run(work(WorkerSetup.read(sys.argv[1])))
        except WallflowerError as error:
            sys.stderr.write(f"error: {error}\n")
            return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
