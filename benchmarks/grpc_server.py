"""Secure sums through the gRPC server: loopback gRPC with TLS, one stream per node.

``make bench-secagg`` runs it after the in-process part. The server (gRPC server,
driver, server machine, spool) is this process; the nodes share further processes, each
node with its own connection, identity and keys. Figures: users per wall-clock second
over whole cohorts, CPU seconds of both sides, bytes per user on the streams, and this
process's memory after each cohort has closed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import psutil

from benchmarks.grpc_nodes import RUN, value_of
from benchmarks.loop_lag import unwrapped
from benchmarks.secagg import THREAT, cohort_spec
from wallflower.protocol.identity.certificates import (
    make_authority,
    make_server_certificate,
)
from wallflower.protocol.identity.enrolment import EnrolmentKey, Trust
from wallflower.protocol.identity.tokens import RunTokens
from wallflower.protocol.messages.port import Request
from wallflower.protocol.secure_sum.backends import SEALED
from wallflower.protocol.secure_sum.sealed.committee import dealing_spec
from wallflower.protocol.secure_sum.session import KeyReady, SecureSum
from wallflower.protocol.wire.cohort_pb2 import CohortSpec
from wallflower.protocol.wire.node_pb2 import (
    CloseCohort,
    CohortStage,
    NodeRequest,
    Task,
)
from wallflower.strategy.run.driver import Deadlines, run_dealing, run_session
from wallflower.strategy.secure_sum import ServerKeyring, server_session
from wallflower.strategy.store.spool import Spool
from wallflower.strategy.transport.grpc.admission import Admission, EnrolledKeys
from wallflower.strategy.transport.grpc.server import GrpcServer
from wallflower.strategy.transport.grpc.settings import GrpcServerSettings


@dataclass(frozen=True)
class Row:
    """One cohort through the gRPC server."""

    cohort: str
    nodes: int
    users_per_s: float
    server_cpu_s: float
    nodes_cpu_s: float
    up_bytes_per_user: float
    down_bytes_per_user: float
    memory_mib: float


class Office:
    """The server's side of the benchmark."""

    def __init__(
        self, grpc_server: GrpcServer, nodes: list[str], trust: Trust | None
    ) -> None:
        self._grpc_server = grpc_server
        self._nodes = nodes
        self._trust = trust
        self._keyring = ServerKeyring(RUN)
        self._due: dict[str, list[str]] = {}

    async def deal(self) -> None:
        """Deal the key that sealed sums share, as a run does at its start."""
        parties = dict.fromkeys(self._nodes, 1)
        spec = dealing_spec(RUN, "dealing", THREAT, parties)
        dealt = await run_dealing(
            server_session(spec, parties, trust=self._trust, keyring=self._keyring),
            self._grpc_server,
            partial(self._wrapped, spec),
            unwrapped,
            Deadlines(300),
        )
        if not isinstance(dealt, KeyReady):
            raise RuntimeError(f"no key was dealt: {dealt}")

    def _wrapped(
        self, spec: CohortSpec, party: str, stage: str, message: bytes
    ) -> Request:
        # As in a run: a closed cohort is told with a node's next request.
        tasks = [
            Task(task_id=f"close {old}", close=CloseCohort(cohort_id=old))
            for old in self._due.pop(party, ())
        ]
        here = CohortStage(spec=spec, message=message)
        tasks.append(Task(task_id=stage, stage=here))
        body = NodeRequest(run_id=RUN, tasks=tasks).SerializeToString()
        return Request(party, f"{spec.cohort_id}/{stage}", body)

    async def cohort(self, backend: str, cohort_id: str, spool: Spool) -> None:
        """Run one cohort from start to sum and check the sum."""
        spec = cohort_spec(len(self._nodes), backend, cohort_id)
        outcome = await run_session(
            server_session(
                spec,
                dict.fromkeys(self._nodes, 1),
                trust=self._trust,
                keyring=self._keyring,
            ),
            self._grpc_server,
            partial(self._wrapped, spec),
            unwrapped,
            Deadlines(300),
            spool.cohort(cohort_id),
        )
        if not isinstance(outcome, SecureSum):
            raise RuntimeError(f"the cohort was void: {outcome}")
        if outcome.users != len(self._nodes):
            raise RuntimeError(f"{outcome.users} of {len(self._nodes)} users survived")
        total = sum(value_of(node, spec) for node in self._nodes)
        if outcome.total != total % spec.modulus:
            raise RuntimeError("the sum is wrong")
        await spool.cohort(cohort_id).forget()
        for node in self._nodes:
            self._due.setdefault(node, []).append(cohort_id)


@contextmanager
def node_processes(
    folder: Path, config: dict[str, object], nodes: list[str], processes: int
) -> Iterator[list[psutil.Process]]:
    """Start the nodes in `processes` processes; stop them at the end."""
    started: list[psutil.Process] = []
    for number in range(processes):
        path = folder / f"nodes-{number}.json"
        path.write_text(json.dumps({**config, "nodes": nodes[number::processes]}))
        started.append(
            psutil.Popen([sys.executable, "-m", "benchmarks.grpc_nodes", str(path)])
        )
    try:
        yield started
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.wait(30)


async def measure(
    count: int, backend: str, cohorts: int, processes: int, enrolled: bool
) -> list[Row]:
    """Let `count` nodes connect, then run `cohorts` cohorts over all of them."""
    now = datetime.now(UTC)
    authority = make_authority("benchmark authority", now=now)
    server = make_server_certificate(authority, ["127.0.0.1"], now=now)
    enrolment, tokens = EnrolmentKey.generate(), RunTokens(RUN, os.urandom(32))
    grpc_server = GrpcServer(
        Admission(tokens, EnrolledKeys(enrolment.public_key)),
        server,
        GrpcServerSettings(handshake_s=120),
    )
    port = await grpc_server.open("127.0.0.1:0")
    nodes = [f"node-{index:05d}" for index in range(count)]
    expiry = int(time.time()) + 3600
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as name, Spool(Path(name) / "spool") as spool:
        config: dict[str, object] = {
            "address": f"127.0.0.1:{port}",
            "root": authority.certificate.decode(),
            "enrolment": enrolment.private_bytes().hex(),
            "enrolled": enrolled,
            "tokens": {
                node: tokens.issue(node, expiry=expiry).to_text() for node in nodes
            },
        }
        with node_processes(Path(name), config, nodes, processes) as others:
            began = time.perf_counter()
            missing = await grpc_server.wait_for(nodes, timeout_s=900)
            if missing:
                raise RuntimeError(f"{len(missing)} nodes did not connect")
            seconds = time.perf_counter() - began
            print(f"{count} nodes connected after {seconds:.1f} s", file=sys.stderr)
            trust = Trust(enrolment.public_key, time.time) if enrolled else None
            office = Office(grpc_server, nodes, trust)
            if backend == SEALED:
                await office.deal()
            for number in range(cohorts):
                rows.append(
                    await _one(
                        grpc_server, office, backend, f"cohort-{number}", spool, others
                    )
                )
                print(_line(rows[-1]), file=sys.stderr, flush=True)
            await grpc_server.close("finished")
    return rows


async def _one(
    grpc_server: GrpcServer,
    office: Office,
    backend: str,
    cohort_id: str,
    spool: Spool,
    others: list[psutil.Process],
) -> Row:
    nodes, own = len(await grpc_server.nodes()), psutil.Process()
    up, down = grpc_server.stats.bytes_in, grpc_server.stats.bytes_out
    server_cpu, nodes_cpu = _cpu([own]), _cpu(others)
    began = time.perf_counter()
    await office.cohort(backend, cohort_id, spool)
    seconds = time.perf_counter() - began
    return Row(
        f"{backend}, {cohort_id}",
        nodes,
        nodes / seconds,
        _cpu([own]) - server_cpu,
        _cpu(others) - nodes_cpu,
        (grpc_server.stats.bytes_in - up) / nodes,
        (grpc_server.stats.bytes_out - down) / nodes,
        own.memory_info().rss / 2**20,
    )


def _cpu(processes: list[psutil.Process]) -> float:
    return sum(sum(process.cpu_times()[:2]) for process in processes)


_HEAD = (
    "| n | cohort through the gRPC server | users/s | CPU s (server + nodes) "
    "| bytes up | bytes down | server MiB after |"
)


def _line(row: Row) -> str:
    return (
        f"| {row.nodes} | {row.cohort} | {row.users_per_s:.0f} "
        f"| {row.server_cpu_s:.2f} + {row.nodes_cpu_s:.2f} "
        f"| {row.up_bytes_per_user:.0f} | {row.down_bytes_per_user:.0f} "
        f"| {row.memory_mib:.0f} |"
    )


def main() -> int:
    """Print the table, or one JSON envelope."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--format", choices=("human", "json"), default="human")
    parser.add_argument("--nodes", type=int, default=1024)
    parser.add_argument("--cohorts", type=int, default=14)
    parser.add_argument("--backend", default="sealed")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--enrolled", action="store_true", help="verify peers' keys")
    options = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    rows = asyncio.run(
        measure(
            options.nodes,
            options.backend,
            options.cohorts,
            options.processes,
            options.enrolled,
        )
    )
    if options.format == "json":
        envelope = {
            "schema_version": 1,
            "command": "bench-grpc",
            "rows": [asdict(row) for row in rows],
        }
        print(json.dumps(envelope))
    else:
        print(_HEAD)
        print("|---|---|---|---|---|---|---|")
        for row in rows:
            print(_line(row))
    return 0


if __name__ == "__main__":
    sys.exit(main())
