"""The ``local`` engine: one process, real clients, real crypto, no Ray.

Requests go straight to the nodes' handlers in memory, or with ``transport.kind =
"grpc"`` through the gRPC server over TLS on loopback, as in a deployment.
"""

from __future__ import annotations

import asyncio
import datetime
import json
import logging
import socket
import ssl
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from wallflower.clients.host.outcome_counts import MANY_UNKNOWN, OutcomeCounts
from wallflower.clients.node.node import Node
from wallflower.clients.transport.grpc_client import Invitation, connect_node
from wallflower.engines.arrivals import check_arrivals, rehearse_arrivals
from wallflower.engines.population import (
    Enrolment,
    LedgeredTransport,
    agreed_policy,
    check_rewards,
    hosted_ledger,
    hosted_nodes,
    read_file,
)
from wallflower.engines.process import stop_tree
from wallflower.engines.registry import EngineJob, EngineSpec
from wallflower.listening.descriptors import SPARE_STREAMS, streams_allowed
from wallflower.protocol.errors import (
    ConfigError,
    InputError,
    UnavailableError,
    first_error,
)
from wallflower.protocol.files.keyfiles import public_key_pem
from wallflower.protocol.files.private import write_anew
from wallflower.protocol.identity.certificates import (
    KeyPair,
    is_valid_at,
    make_authority,
    make_server_certificate,
    names_host,
)
from wallflower.protocol.identity.enrolment import Trust
from wallflower.protocol.identity.tokens import RunTokens
from wallflower.protocol.messages.port import NodeTransport
from wallflower.protocol.numbers import counted
from wallflower.protocol.secure_sum.backends import SHUFFLE
from wallflower.results.run_folder import check_hosted_ledger
from wallflower.strategy.config import ExperimentConfig
from wallflower.strategy.run.orchestrator import Orchestrator
from wallflower.strategy.run.pending_cohorts import make_session_factory
from wallflower.strategy.sections import TransportSettings
from wallflower.strategy.store.event_log import EventLog
from wallflower.strategy.store.journal import Journal
from wallflower.strategy.transport.grpc.admission import Admission, EnrolledKeys
from wallflower.strategy.transport.grpc.gc_tuning import TunedGc
from wallflower.strategy.transport.grpc.server import GrpcServer
from wallflower.strategy.transport.grpc.settings import GrpcServerSettings
from wallflower.strategy.transport.memory import MemoryTransport
from wallflower.strategy.transport.shuffler import (
    ShufflerFiles,
    ShufflerPlace,
    shuffled,
    stated_shuffler,
)
from wallflower.strategy.watch.telemetry import fan_out

_TOKEN_DAYS = 7
_SHUFFLER_START_S = 60.0


def check_local(config: ExperimentConfig) -> None:
    """Refuse what would fail later: transport, files, rewards, port, descriptors."""
    kind = _transport(config)
    agreed_policy(config)
    check_arrivals(config)
    check_rewards(config)
    if kind == "grpc":
        _certificates(config.transport)
        _check_port(config.transport)
        hosted = config.nodes.count  # in this process, as their server is
        streams_allowed(hosted + SPARE_STREAMS, hosted)


_log = logging.getLogger(__name__)


async def run_local(job: EngineJob) -> None:
    """Drive a job to its end; see `wallflower.engines.registry.Engine`."""
    config = job.config
    if config.visitors is not None:
        await rehearse_arrivals(job)
        return
    kind = _transport(config)
    needs_enrolment = kind == "grpc" or config.secure_sum.server == "malicious"
    enrolment = Enrolment(config) if needs_enrolment else None
    trust = None if enrolment is None else Trust(enrolment.public_key, time.time)
    with Journal.resume(job.run_dir, config) as journal, EventLog(job.run_dir) as log:
        check_hosted_ledger(journal)
        with hosted_ledger(job.run_dir, config.nodes.ledger) as ledger:
            async with AsyncExitStack() as stack:
                place = await stack.enter_async_context(
                    _local_shuffler(config, job.run_dir, enrolment)
                )
                pinned = () if place is None else (place.files.fingerprint,)
                outcomes = _Outcomes()
                nodes = hosted_nodes(config, ledger, enrolment, pinned, outcomes.add)
                stack.callback(outcomes.describe)
                settled = TunedGc()  # of thousands of nodes, most of them idle
                stack.callback(settled.close)
                settled.tune(len(nodes), time.monotonic())
                port = await stack.enter_async_context(
                    _port(kind, config, job.run_id, nodes, enrolment)
                )
                port = await stack.enter_async_context(shuffled(port, place))
                orchestrator = Orchestrator(
                    config,
                    journal,
                    LedgeredTransport(port, ledger),
                    make_session_factory(job.run_id, trust, place),
                    fan_out(log.listen, job.listen),
                    expected_nodes=len(nodes),
                )
                await orchestrator.run()


class _Outcomes:
    """How many outcomes a rehearsal did not know; for real only their node learns."""

    def __init__(self) -> None:
        self._counts = OutcomeCounts()

    def add(self, shown: int, unknown: Mapping[str, int]) -> None:
        """Count those of one more cohort of a node."""
        self._counts = self._counts.plus(shown, unknown)

    def describe(self) -> None:
        """Warn where many count as something else than what happened."""
        many, shown = sum(self._counts.unknown.values()), self._counts.shown
        if many > MANY_UNKNOWN * shown:
            why = ", ".join(f"{n:,} {one}" for one, n in self._counts.unknown.items())
            _log.warning(
                "%s of %s of this rehearsal were not known in time (%s); each counts "
                "as rewards.if-unknown",
                f"{many:,}",
                counted(shown, "outcome"),
                why,
            )


def _transport(config: ExperimentConfig) -> str:
    kind = config.transport.kind
    if kind == "flower":
        raise InputError(
            "transport.kind", '"flower"', "auto, memory or grpc on engine local"
        )
    return "memory" if kind == "auto" else kind


def _check_port(transport: TransportSettings) -> None:
    try:
        with socket.create_server((transport.host, transport.port)):
            return
    except OSError as error:
        why, _, _ = str(error.strerror).partition(" (")  # Python repeats the address
        raise UnavailableError(
            f"the gRPC server cannot listen on {transport.host}:{transport.port} "
            f"({why}); free the port or set transport.port = 0 for any"
        ) from None


@asynccontextmanager
async def _port(
    kind: str,
    config: ExperimentConfig,
    run_id: str,
    nodes: Mapping[str, Node],
    enrolment: Enrolment | None,
) -> AsyncIterator[NodeTransport]:
    if kind == "memory":
        yield MemoryTransport(nodes)
        return
    assert enrolment is not None
    try:
        async with _grpc_server(config, run_id, nodes, enrolment) as grpc_server:
            yield grpc_server
    except BaseExceptionGroup as group:
        raise first_error(group) from None


@asynccontextmanager
async def _grpc_server(
    config: ExperimentConfig,
    run_id: str,
    nodes: Mapping[str, Node],
    enrolment: Enrolment,
) -> AsyncIterator[GrpcServer]:
    """Open a gRPC server on loopback and connect every node to it in this process."""
    transport = config.transport
    authority, server = _certificates(transport)
    tokens = RunTokens(run_id, RunTokens.new_secret())
    admission = Admission(
        tokens,
        EnrolledKeys(enrolment.public_key),
        malicious_server=config.secure_sum.server == "malicious",
    )
    grpc_server = GrpcServer(
        admission, server, GrpcServerSettings(most_handshakes=len(nodes) + 100)
    )
    where = f"{transport.host}:{transport.port}"
    port = await grpc_server.open(where, hosted=len(nodes))
    expiry = int(time.time()) + _TOKEN_DAYS * 86_400
    reason = "failed"
    try:
        async with asyncio.TaskGroup() as group:
            connected = [
                group.create_task(
                    connect_node(
                        Invitation(
                            f"{transport.host}:{port}",
                            authority,
                            run_id,
                            tokens.issue(name, expiry=expiry),
                        ),
                        enrolment.identities[name],
                        node,
                    )
                )
                for name, node in nodes.items()
            ]
            try:
                yield grpc_server
                reason = "finished"
            finally:
                await grpc_server.close(reason)
                for task in connected:
                    task.cancel()
    finally:
        await grpc_server.close("failed")


@asynccontextmanager
async def _local_shuffler(
    config: ExperimentConfig, run_dir: Path, enrolment: Enrolment | None
) -> AsyncIterator[ShufflerPlace | None]:
    """Return the shuffler of the experiment, or start one while inside.

    One that is started is a process beside, on loopback. That it is not independent of
    the operator is plain: a rehearsal keeps nothing from whoever runs it.
    """
    settings = config.secure_sum
    if settings.backend != SHUFFLE or settings.shuffler:
        yield stated_shuffler(settings)
        return
    home = run_dir / "shuffler"
    command = [sys.executable, "-m", "wallflower", "shuffler", "--as-child"]
    command += ["--home", str(home)]
    if enrolment is not None:
        write_anew(run_dir / "shuffler.enrolment", public_key_pem(enrolment.public_key))
        command += ["--enrolment", str(run_dir / "shuffler.enrolment")]
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.PIPE,  # held open: a run that is killed closes it
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        yield ShufflerPlace(
            await _shuffler_address(process), ShufflerFiles.read(home / "operator")
        )
    finally:
        await stop_tree(process)


async def _shuffler_address(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    try:
        async with asyncio.timeout(_SHUFFLER_START_S):
            line = await process.stdout.readline()
        return str(json.loads(line)["shuffler"])
    except (TimeoutError, ValueError, KeyError):
        raise UnavailableError("the shuffler did not start; see its messages") from None


def _certificates(transport: TransportSettings) -> tuple[bytes, KeyPair]:
    """Return the root certificate nodes believe and the gRPC server's own pair."""
    if transport.certificate is not None and transport.private_key is not None:
        pair = KeyPair(
            read_file("transport.certificate", transport.certificate),
            read_file("transport.private-key", transport.private_key),
        )
        _check_pair(pair, transport)
        return pair.certificate, pair
    now = datetime.datetime.now(datetime.UTC)
    authority = make_authority("Wallflower local run", now=now, days=_TOKEN_DAYS)
    server = make_server_certificate(
        authority, [transport.host], now=now, days=_TOKEN_DAYS
    )
    return authority.certificate, server


def _check_pair(pair: KeyPair, transport: TransportSettings) -> None:
    """Refuse a certificate that nodes would refuse, or a key that is another's."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    where = f"transport.certificate {transport.certificate}"
    if not is_valid_at(pair.certificate, datetime.datetime.now(datetime.UTC)):
        raise ConfigError(where, "is expired or not valid yet; make a new one")
    if not names_host(pair.certificate, transport.host):
        raise ConfigError(where, f"does not name transport.host {transport.host}")
    try:
        context.load_cert_chain(str(transport.certificate), str(transport.private_key))
    except (ssl.SSLError, OSError) as error:
        raise ConfigError(
            "transport.private-key", f"does not fit transport.certificate ({error})"
        ) from None


LOCAL = EngineSpec(run_local, check_local)
