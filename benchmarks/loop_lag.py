"""How long the server's event loop stands still in a sealed cohort: ``make bench-lag``.

The driver and the server's machine run here, contributors in two further processes, the
committee in this one. A probe asks to be woken every 10 ms; how much later it was is
the lag, which is what a heartbeat would wait at most: on time is what comes within a
tenth of the time between two beats. Exit code 1 where it was longer.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from benchmarks.grpc_nodes import RUN, Node
from benchmarks.secagg import THREAT, Parties
from wallflower.protocol.identity.enrolment import NodeIdentity
from wallflower.protocol.messages.port import Answer, NodeHandler, Request
from wallflower.protocol.secure_sum.sealed.committee import dealing_spec
from wallflower.protocol.secure_sum.session import KeyReady, SecureSum
from wallflower.protocol.wire.cohort_pb2 import CohortSpec
from wallflower.protocol.wire.node_pb2 import (
    CohortStage,
    NodeAnswer,
    NodeRequest,
    Task,
)
from wallflower.strategy.run.driver import Deadlines, Refusal, run_dealing, run_session
from wallflower.strategy.secure_sum import ServerKeyring, server_session
from wallflower.strategy.transport.grpc.settings import GrpcServerSettings
from wallflower.strategy.transport.memory import MemoryTransport
from wallflower.strategy.transport.pending_requests import Inbox

MEMBERS = 64
_TICK_S = 0.01
_ON_TIME_S = GrpcServerSettings().heartbeat_s / 10
_CHUNK = 256


@dataclass
class Probe:
    """Asks to be woken every 10 ms, and notes how late it was."""

    longest_s: float = 0.0
    ticks: int = 0
    _task: asyncio.Task[None] | None = field(default=None, repr=False)

    def start(self) -> None:
        """Begin to look."""
        self._task = asyncio.create_task(self._look())

    def stop(self) -> None:
        """Have seen enough."""
        if self._task is not None:
            self._task.cancel()

    async def _look(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            before = loop.time()
            await asyncio.sleep(_TICK_S)
            self.longest_s = max(self.longest_s, loop.time() - before - _TICK_S)
            self.ticks += 1


@asynccontextmanager
async def progress(what: str, done: Callable[[], int], of: int) -> AsyncIterator[None]:
    """Say every ten seconds how far it is."""
    began = time.perf_counter()

    async def say() -> None:
        while True:
            await asyncio.sleep(10)
            passed = time.perf_counter() - began
            said = f"{what}: {done():,} of {of:,} after {passed:.0f} s"
            print(said, file=sys.stderr, flush=True)

    saying = asyncio.create_task(say())
    try:
        yield
    finally:
        saying.cancel()


def on_time(longest_s: float) -> str:
    """Say whether heartbeats were."""
    word = "on time" if longest_s <= _ON_TIME_S else "LATE"
    return (
        f"heartbeats {word}: the loop stood still for {1000 * longest_s:.0f} ms at "
        f"most ({1000 * _ON_TIME_S:.0f} ms are allowed)"
    )


class FarNodes:
    """Contributors in other processes; members of the committee in this one."""

    def __init__(self, members: dict[str, NodeHandler], pool: ProcessPoolExecutor):
        self._near = MemoryTransport(members)
        self._members = frozenset(members)
        self._pool = pool
        self.heard = 0

    async def nodes(self) -> Sequence[str]:
        """Name the members."""
        return sorted(self._members)

    async def ask(
        self, requests: Sequence[Request], *, timeout_s: float
    ) -> AsyncGenerator[Answer, None]:
        """Ask each where it is."""
        if requests[0].node_id in self._members:
            async for answer in self._near.ask(requests, timeout_s=timeout_s):
                yield answer
            return
        loop = asyncio.get_running_loop()
        deadline, inbox = loop.time() + timeout_s, Inbox(requests)

        async def far(chunk: Sequence[Request]) -> None:
            given = [(one.node_id, one.body) for one in chunk]
            bodies = await loop.run_in_executor(self._pool, answered, given)
            for one, body in zip(chunk, bodies, strict=True):
                inbox.deliver(Answer(one.node_id, one.request_id, body))

        async with asyncio.TaskGroup() as group:
            for start in range(0, len(requests), _CHUNK):
                group.create_task(far(requests[start : start + _CHUNK]))
            while (came := await inbox.next_before(deadline)) is not None:
                self.heard += 1
                yield came


def answered(given: Sequence[tuple[str, bytes]]) -> list[bytes]:
    """Answer as these nodes would; runs in another process."""
    made = [(Node(NodeIdentity.generate(name), None), body) for name, body in given]
    return [asyncio.run(node.handle(body)) for node, body in made]


def wrapped(spec: CohortSpec, party: str, stage: str, message: bytes) -> Request:
    """Make a stage's request."""
    task = Task(task_id=stage, stage=CohortStage(spec=spec, message=message))
    body = NodeRequest(run_id=RUN, tasks=[task]).SerializeToString()
    return Request(party, f"{spec.cohort_id}/{stage}", body)


def unwrapped(answer: Answer) -> bytes | Refusal:
    """Read a node's answer."""
    entry = NodeAnswer.FromString(answer.body).answers[-1]
    if entry.WhichOneof("kind") == "refusal":
        return Refusal(entry.refusal.code)
    return entry.message


async def measure(count: int, proved: bool) -> float:
    """Run one cohort of `count` nodes; print and give what the probe saw."""
    nodes: dict[str, NodeHandler] = {
        f"member-{index:05d}": Node(NodeIdentity.generate(f"member-{index:05d}"), None)
        for index in range(MEMBERS)
    }
    keyring = ServerKeyring(RUN)
    with ProcessPoolExecutor(2) as pool:
        port = FarNodes(nodes, pool)
        dealing = dealing_spec(RUN, "dealing", THREAT, dict.fromkeys(nodes, 1))
        dealt = await run_dealing(
            server_session(dealing, dict.fromkeys(nodes, 1), keyring=keyring),
            port,
            lambda party, stage, message: wrapped(dealing, party, stage, message),
            unwrapped,
            Deadlines(300),
        )
        if not isinstance(dealt, KeyReady):
            raise RuntimeError(f"no key was dealt: {dealt}")
        parties = Parties(count)
        spec = parties.spec("sealed", "proved" if proved else "trusted")
        probe, cpu, began = Probe(), time.process_time(), time.perf_counter()
        probe.start()
        async with progress("contributions", lambda: port.heard, count):
            outcome = await run_session(
                server_session(spec, parties.users, keyring=keyring),
                port,
                lambda party, stage, message: wrapped(spec, party, stage, message),
                unwrapped,
                Deadlines(3000),
            )
        probe.stop()
    if not isinstance(outcome, SecureSum):
        raise RuntimeError(f"the cohort was void: {outcome}")
    print(
        f"| {count:,} | {spec.cohort_id} | {1000 * probe.longest_s:.0f} ms "
        f"| {probe.ticks:,} | {time.perf_counter() - began:.0f} s "
        f"| {1000 * (time.process_time() - cpu) / count:.3f} ms |",
        flush=True,
    )
    return probe.longest_s


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=65_536)
    parser.add_argument("--proved", action="store_true", help="inputs with proofs")
    options = parser.parse_args()
    print("| n | inputs | longest lag | looks | wall | server CPU per node |")
    print("|---|---|---|---|---|---|")
    longest_s = asyncio.run(measure(options.nodes, options.proved))
    print(on_time(longest_s))
    return 0 if longest_s <= _ON_TIME_S else 1


if __name__ == "__main__":
    sys.exit(main())
