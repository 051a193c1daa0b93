"""Nodes that only poll: ``make bench-grpc ONE_MESSAGE=10000``.

One sealed cohort over loopback gRPC with TLS. The server (gRPC, driver, server machine)
is this process; the committee connects by streams and the contributors poll, in
further processes, each node with an identity and connections of its own. A node
comes by once, and then makes the two calls of a cohort. Printed: the server's CPU time
per 1,000 users, its memory per node, and the longest that its event loop stood still.
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
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

from benchmarks.grpc_nodes import RUN, Node
from benchmarks.grpc_server import node_processes
from benchmarks.loop_lag import MEMBERS, Probe, on_time, progress, unwrapped, wrapped
from benchmarks.secagg import THREAT, Parties
from wallflower.clients.transport.grpc_client import Invitation
from wallflower.clients.transport.polling import PollingClient, PollingSettings
from wallflower.protocol.identity.certificates import (
    make_authority,
    make_server_certificate,
)
from wallflower.protocol.identity.enrolment import EnrolmentKey, NodeIdentity
from wallflower.protocol.identity.tokens import RunTokens
from wallflower.protocol.secure_sum.sealed.committee import dealing_spec
from wallflower.protocol.secure_sum.session import KeyReady, SecureSum
from wallflower.strategy.run.driver import Deadlines, run_dealing, run_session
from wallflower.strategy.secure_sum import ServerKeyring, server_session
from wallflower.strategy.transport.grpc.admission import Admission, EnrolledKeys
from wallflower.strategy.transport.grpc.server import GrpcServer
from wallflower.strategy.transport.grpc.settings import GrpcServerSettings

_HEAD = (
    "| nodes | server CPU s per 1,000 users, their cohort | … coming by first "
    "| calls a node | memory a node | server MiB | longest lag | wall |\n"
    "|---|---|---|---|---|---|---|---|"
)
_AT_ONCE = 20  # polls under way in one process
_SETTINGS = PollingSettings(first_wait_s=0.2, longest_wait_s=5, patience_s=900)


async def run_polling_nodes(config: dict[str, Any]) -> None:
    """Let every node come by; on a line of input, make a cohort's two calls."""
    enrolment = EnrolmentKey.from_private_bytes(bytes.fromhex(config["enrolment"]))
    tokens = RunTokens(RUN, bytes.fromhex(config["secret"]))
    until, turn = int(time.time()) + 3600, asyncio.Semaphore(_AT_ONCE)

    def polling_client(node_id: str) -> PollingClient:
        bare = NodeIdentity.generate(node_id)
        identity = bare.enrolled(
            enrolment.issue(node_id, bare.public_key, not_after=until)
        )
        token = tokens.issue(node_id, expiry=until)
        invitation = Invitation(config["address"], config["root"].encode(), RUN, token)
        return PollingClient(
            invitation, identity, Node(identity, None), settings=_SETTINGS
        )

    async def come(one: PollingClient) -> None:
        async with turn:
            await one.once()

    everybody = [polling_client(node_id) for node_id in config["nodes"]]
    await asyncio.gather(*map(come, everybody))
    await asyncio.to_thread(sys.stdin.readline)
    await asyncio.gather(*map(come, everybody))


async def started(path: Path) -> asyncio.subprocess.Process:
    """Start a process full of polling nodes."""
    return await asyncio.create_subprocess_exec(
        sys.executable,
        *("-W", "ignore", "-m", "benchmarks.polling"),
        *("--polling-nodes", str(path)),
        stdin=asyncio.subprocess.PIPE,
    )


async def asked(grpc_server: GrpcServer, node_id: str) -> None:
    """Wait until a node has something to fetch."""
    while grpc_server._node_queues[node_id].idle:  # noqa: ASYNC110 (nothing tells)
        await asyncio.sleep(0.05)


async def measure(count: int, processes: int) -> None:
    """Run one cohort of `count` polling nodes and print what it cost the server."""
    now = datetime.now(UTC)
    authority = make_authority("benchmark authority", now=now)
    server = make_server_certificate(authority, ["127.0.0.1"], now=now)
    enrolment, secret = EnrolmentKey.generate(), os.urandom(32)
    tokens = RunTokens(RUN, secret)
    settings = GrpcServerSettings(handshake_s=120, poll_s=600, refusals_burst=100_000)
    grpc_server = GrpcServer(
        Admission(tokens, EnrolledKeys(enrolment.public_key)), server, settings
    )
    port = await grpc_server.open("127.0.0.1:0")
    members = {f"member-{index:05d}": 1 for index in range(MEMBERS)}
    parties = Parties(count)
    keyring, own = ServerKeyring(RUN), psutil.Process()
    until = int(time.time()) + 3600
    config: dict[str, Any] = {
        "address": f"127.0.0.1:{port}",
        "root": authority.certificate.decode(),
        "enrolment": enrolment.private_bytes().hex(),
        "secret": secret.hex(),
        "enrolled": False,
        "tokens": {
            node: tokens.issue(node, expiry=until).to_text() for node in members
        },
    }
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with node_processes(folder, config, list(members), 1):
            if await grpc_server.wait_for(members, timeout_s=120):
                raise RuntimeError("the committee did not connect")
            dealing = dealing_spec(RUN, "dealing", THREAT, members)
            dealt = await run_dealing(
                server_session(dealing, members, keyring=keyring),
                grpc_server,
                lambda party, stage, message: wrapped(dealing, party, stage, message),
                unwrapped,
                Deadlines(300),
            )
            if not isinstance(dealt, KeyReady):
                raise RuntimeError(f"no key was dealt: {dealt}")
            before_mib, others = own.memory_info().rss / 2**20, []
            nodes = list(parties.users)
            for number in range(processes):
                path = folder / f"polling-nodes-{number}.json"
                here = {**config, "nodes": nodes[number::processes]}
                path.write_text(json.dumps(here))
                others.append(await started(path))
            try:
                probe = Probe()
                probe.start()
                arriving = time.process_time()
                async with progress(
                    "came by", lambda: grpc_server.stats.polling_nodes, count
                ):
                    missing = await grpc_server.wait_for(nodes, timeout_s=1200)
                if missing:
                    raise RuntimeError(f"{len(missing)} nodes did not come by")
                arriving = time.process_time() - arriving
                spec = parties.spec("sealed", "trusted")
                polls, cpu, began = (
                    grpc_server.stats.polls,
                    time.process_time(),
                    time.perf_counter(),
                )
                summing = asyncio.create_task(
                    run_session(
                        server_session(spec, parties.users, keyring=keyring),
                        grpc_server,
                        lambda party, stage, message: wrapped(
                            spec, party, stage, message
                        ),
                        unwrapped,
                        Deadlines(1800),
                    )
                )
                await asked(grpc_server, nodes[-1])
                for other in others:
                    assert other.stdin is not None
                    other.stdin.write(b"go\n")
                async with progress(
                    "calls of the cohort",
                    lambda: grpc_server.stats.polls - polls,
                    2 * count,
                ):
                    outcome = await summing
                probe.stop()
                cpu = time.process_time() - cpu
                seconds = time.perf_counter() - began
            finally:
                for other in others:
                    if other.returncode is None:
                        other.kill()
                    await other.wait()
            if not isinstance(outcome, SecureSum) or outcome.users != count:
                raise RuntimeError(f"not everybody is in the sum: {outcome}")
            mib = own.memory_info().rss / 2**20
            calls = (grpc_server.stats.polls - polls) / count
            print(_HEAD)
            print(
                f"| {count:,} | {1000 * cpu / count:.2f} "
                f"| {1000 * arriving / count:.2f} | {calls:.2f} "
                f"| {1024 * (mib - before_mib) / count:.1f} KiB | {mib:.0f} "
                f"| {1000 * probe.longest_s:.0f} ms | {seconds:.0f} s |",
                flush=True,
            )
            print(f"everybody is in the sum; {on_time(probe.longest_s)}")
            await grpc_server.close()


def main() -> int:
    """Print the table, or be a process full of polling nodes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--processes", type=int, default=3)
    parser.add_argument("--polling-nodes", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    if options.polling_nodes is not None:
        asyncio.run(run_polling_nodes(json.loads(options.polling_nodes.read_text())))
        return 0
    asyncio.run(measure(options.nodes, options.processes))
    return 0


if __name__ == "__main__":
    sys.exit(main())
