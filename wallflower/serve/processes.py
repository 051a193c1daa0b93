"""The parent of all processes of `wallflower serve` on one host.

It opens the socket that the workers accept from, starts them, starts another one for
each that dies, and ends them in order. It answers nobody's polls itself, so that
nothing of what people send can hurt it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace

from prometheus_client import CollectorRegistry, generate_latest, multiprocess

from wallflower.protocol.errors import UnavailableError
from wallflower.serve.setup import WorkerSetup
from wallflower.strategy.watch.endpoint import health_endpoint

WORKER, ORCHESTRATOR = "worker", "orchestrator"
_MODULES = {
    WORKER: "wallflower.serve.worker",
    ORCHESTRATOR: "wallflower.serve.orchestrator",
}
_BACKLOG = 2048
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 5.0
_STEADY_S = 30.0  # a process that lived so long may be started again at once
_DRAIN_S = 15.0
# Exit codes after which a new start would end the same way, or use up more people.
_FOR_GOOD = {WORKER: (0, 2), ORCHESTRATOR: (0, 2, 3, 4)}
_METRICS_DIR = "PROMETHEUS_MULTIPROC_DIR"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ServeSetup:
    """What one host serves.

    Attributes
    ----------
    workers : how many.
    host, port : where visitors' HTTP arrives; port 0: any free one.
    grpc_port : for gRPC on the same host; None: no gRPC.
    metrics : ``host:port`` of metrics and health; empty for none.
    worker : what each worker does; the listener is opened here.
    orchestrator : the run's directory for an orchestrator; empty for none.
    """

    workers: int
    host: str
    port: int
    grpc_port: int | None
    metrics: str
    worker: WorkerSetup
    orchestrator: str = ""


class ServerProcesses:
    """Keeps the processes of one host running.

    Parameters
    ----------
    setup : ServeSetup
        What to run.
    announce : Callable[[str], None]
        Hears where visitors arrive, once the socket is open.
    """

    def __init__(self, setup: ServeSetup, announce: Callable[[str], None]) -> None:
        self._setup = setup
        self._announce = announce
        self._closing = asyncio.Event()
        self._running: dict[str, asyncio.subprocess.Process] = {}
        self._ended: dict[str, int] = {}  # for good, with which code

    async def run(self) -> int:
        """Run until SIGTERM or SIGINT; return the exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._closing.set)
        with contextlib.ExitStack() as stack:
            listener, worker = self._open_sockets(stack)
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            async with self._metrics(folder) as metrics, asyncio.TaskGroup() as group:
                self._announce(_address(listener, worker) + metrics)
                names = [f"{WORKER}-{n}" for n in range(self._setup.workers)]
                for name in names:
                    group.create_task(self._keep(name, worker.to_text(), folder))
                if self._setup.orchestrator:
                    text = self._setup.orchestrator
                    group.create_task(self._keep(ORCHESTRATOR, text, folder))
                await self._closing.wait()
                self._end_all()
        return max(self._ended.values(), default=0)

    def _open_sockets(
        self, stack: contextlib.ExitStack
    ) -> tuple[socket.socket, WorkerSetup]:
        setup = self._setup
        family = socket.AF_INET6 if ":" in setup.host else socket.AF_INET
        place = setup.host, setup.port
        try:
            listener = stack.enter_context(
                socket.create_server(place, family=family, backlog=_BACKLOG)
            )
            worker = replace(setup.worker, listener=listener.fileno())
            if setup.grpc_port is not None:
                # Held for the workers, which listen on it together.
                held = stack.enter_context(socket.socket(family))
                held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
                held.bind((setup.host, setup.grpc_port))
                worker = replace(worker, grpc=_place(held))
        except OSError as error:
            ports = f"port {setup.port}"
            if setup.grpc_port is not None:
                ports = f"ports {setup.port} and {setup.grpc_port}"
            raise UnavailableError(
                f"cannot listen on {setup.host}, {ports} ({error.strerror}); choose "
                "another"
            ) from None
        return listener, worker

    @contextlib.asynccontextmanager
    async def _metrics(self, folder: str) -> AsyncIterator[str]:
        """Serve what all workers counted; give what is announced of it."""
        address = self._setup.metrics
        if not address:
            yield ""
            return

        def text() -> bytes:
            registry = CollectorRegistry()
            multiprocess.MultiProcessCollector(registry, path=folder)  # type: ignore[no-untyped-call]
            return generate_latest(registry)

        async with health_endpoint(address, text, self._problem) as port:
            yield f", metrics at {address.rpartition(':')[0]}:{port}"

    def _problem(self) -> str | None:
        if self._closing.is_set():
            return "closing"
        living = sum(name.startswith(WORKER) for name in self._running)
        if living < self._setup.workers:
            return f"{living} of {self._setup.workers} workers are up"
        if self._ended.get(ORCHESTRATOR):
            return "the orchestrator gave up; see its error, then start again"
        return None

    async def _keep(self, name: str, text: str, folder: str) -> None:
        """Keep one process running until the end, or until it ends for good."""
        pause_s = _FIRST_PAUSE_S
        while not self._closing.is_set():
            begun = time.monotonic()
            code = await self._run_once(name, text, folder)
            if self._closing.is_set():
                return
            _log.warning(
                "%s ended with status %d",
                name,
                code,
                extra={"event": "process-ended", "status": code, "detail": name},
            )
            if code in _FOR_GOOD[name.partition("-")[0]]:
                self._ended[name] = code
                if code == 2:  # what was asked for cannot be done
                    self._closing.set()
                return
            if time.monotonic() - begun > _STEADY_S:
                pause_s = _FIRST_PAUSE_S
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._closing.wait()
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    async def _run_once(self, name: str, text: str, folder: str) -> int:
        kind = name.partition("-")[0]
        listener = [] if kind != WORKER else [WorkerSetup.read(text).listener]
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", _MODULES[kind], text),
            stdin=asyncio.subprocess.PIPE,
            pass_fds=listener,
            env={**os.environ, _METRICS_DIR: folder},
            start_new_session=True,  # Ctrl-C reaches us, and we end them in order
        )
        self._running[name] = process
        if self._closing.is_set():  # meanwhile
            process.terminate()
        try:
            return await process.wait()
        finally:
            del self._running[name]
            multiprocess.mark_process_dead(process.pid, folder)  # type: ignore[no-untyped-call]

    def _end_all(self) -> None:
        for process in self._running.values():
            process.terminate()
        asyncio.get_running_loop().call_later(_DRAIN_S, self._kill_all)

    def _kill_all(self) -> None:
        for process in self._running.values():
            process.kill()


def _place(held: socket.socket) -> str:
    host, port = held.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _address(listener: socket.socket, worker: WorkerSetup) -> str:
    scheme = "https" if worker.certificate else "http"
    address = f"{scheme}://{_place(listener)}"
    return f"{address}, gRPC at {worker.grpc}" if worker.grpc else address
