"""The ``serve`` engine: people arrive at the workers of `wallflower serve`.

This is the operator's half: it opens and closes rounds and has the trustees open the
sums. Trustees connect to the run's gRPC server. Workers are processes of their own, on
this host or on others; they agree with it through the run's database alone.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path

from wallflower.clients.host import invitations
from wallflower.clients.transport.grpc_client import Invitation
from wallflower.engines.registry import EngineJob, EngineSpec
from wallflower.protocol.errors import InputError
from wallflower.protocol.identity.enrolment import Trust
from wallflower.strategy.config import ExperimentConfig
from wallflower.strategy.run.arriving.orchestrator import VisitorOrchestrator
from wallflower.strategy.run.pending_cohorts import make_session_factory
from wallflower.strategy.store.event_log import EventLog
from wallflower.strategy.store.journal import Journal
from wallflower.strategy.transport.grpc.host import (
    TrusteeInvitation,
    enrolment_key,
    grpc_certificates,
    revoked_serials,
    trustee_grpc,
)
from wallflower.strategy.transport.visitors.handler import visitor_trust
from wallflower.strategy.watch.observing import observe_run
from wallflower.strategy.watch.telemetry import fan_out

TRUSTEES = "trustees"  # the folder of a run's invitations
STANDBY = "standby"


def check_visitors(config: ExperimentConfig) -> None:
    """Refuse what would fail later: who may come, trustees, certificate, port."""
    visitors = config.visitors
    if visitors is None:
        raise InputError("visitors", "missing", "a [visitors] table on engine serve")
    if not visitors.trustees:
        raise InputError(
            "visitors.trustees",
            "missing",
            f"the names of {visitors.least_trustees} or more trustees on engine serve",
        )
    if not config.transport.port:
        raise InputError("transport.port", 0, "a fixed port: trustees come back to it")
    visitor_trust(config)
    enrolment_key(config)
    grpc_certificates(config.transport)


async def run_visitors(job: EngineJob) -> None:
    """Drive a job to its end; see `wallflower.engines.registry.Engine`.

    With the option ``standby=yes`` it waits until no other server works on the run.
    """
    config, run_dir = job.config, job.run_dir
    standby = dict(job.options).get(STANDBY) == "yes"
    key = enrolment_key(config)
    trust = None if key is None else Trust(key, time.time, revoked_serials(config))
    with (
        Journal.resume(run_dir, config, standby=standby) as journal,
        EventLog(run_dir) as log,
        journal.open_spool() as spool,
    ):
        async with (
            trustee_grpc(config, job.run_id, run_dir) as trustees,
            observe_run(job.run_id, trustees.server.stats) as watch,
        ):
            _write_invitations(run_dir / TRUSTEES, job.run_id, trustees.invited)
            orchestrator = VisitorOrchestrator(
                config,
                journal,
                trustees.server,
                make_session_factory(job.run_id, trust),
                spool=spool,
                listen=fan_out(log.listen, watch, job.listen),
            )
            await orchestrator.run()
            trustees.is_over = orchestrator.is_over


def _write_invitations(
    folder: Path, run_id: str, invited: Sequence[TrusteeInvitation]
) -> None:
    """Write each trustee's invitation to a file of its own."""
    for one in invited:
        invitation = Invitation(one.address, one.root_certificate, run_id, one.token)
        invitations.write(folder / f"{one.name}.json", invitation)
    sys.stderr.write(
        f"Invitations for {len(invited)} trustees are in {folder}: send each its own "
        "(wallflower trustee HOME --invitation FILE)\n"
    )


SERVE = EngineSpec(run_visitors, check_visitors, (STANDBY,))
