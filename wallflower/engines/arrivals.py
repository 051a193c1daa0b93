"""A rehearsal with people who arrive, in one process: everybody is real but the person.

Whoever comes runs the code of a visitor's device: terms are checked, the spend is
written down, the outcome is noised and encrypted. Trustees hold the key. Seats are in
the run's database, as workers of `wallflower serve` have them.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from wallflower.clients.host.assemble import NodeSetup, make_node
from wallflower.clients.node.ledger import Ledger
from wallflower.clients.node.node import Node
from wallflower.clients.node.sessions import SessionStore
from wallflower.engines.population import hosted_ledger, hosted_setup, trustee_names
from wallflower.engines.registry import EngineJob
from wallflower.protocol.errors import InputError, first_error
from wallflower.protocol.identity.enrolment import (
    SEED_FILE,
    EnrolmentKey,
    NodeIdentity,
    Trust,
    simulated_identity,
)
from wallflower.protocol.visitors import ARRIVAL_BYTES, ENROLLED, INVITED
from wallflower.results.run_folder import check_hosted_ledger
from wallflower.strategy.config import ExperimentConfig
from wallflower.strategy.run.arriving.orchestrator import VisitorOrchestrator
from wallflower.strategy.run.pending_cohorts import make_session_factory
from wallflower.strategy.secure_sum.contributions import SeatTerms
from wallflower.strategy.store.event_log import EventLog
from wallflower.strategy.store.journal import Journal
from wallflower.strategy.store.seat_store import SeatQueue, SeatStore
from wallflower.strategy.store.seats import RUN_OVER, NoFreeSeat, TakenSeat
from wallflower.strategy.transport.memory import MemoryTransport
from wallflower.strategy.watch.telemetry import fan_out

_INVITER_FILE = "simulated-inviter.key"
_AT_ONCE = 128  # people who are there at the same time
_PAUSE_S = 0.02  # until the next one comes where no seat is free
_LOOK_S = 0.05


def check_arrivals(config: ExperimentConfig) -> None:
    """Refuse what people who arrive cannot have."""
    if config.visitors is None or config.rewards is None:
        return
    if config.rewards.source == "table":
        raise InputError(
            "rewards.source",
            '"table"',
            "synthetic, callable or grpc with [visitors]: a table says beforehand who "
            "there is",
        )


@dataclass(frozen=True, slots=True)
class Keys:
    """Who vouches for whom in a rehearsal; the run directory keeps both seeds."""

    admission: str
    enrolment: bytes
    inviter: bytes

    @classmethod
    def keep(cls, admission: str, run_dir: Path) -> Keys:
        """Read the keys of a run, or make them for a new one."""
        return cls(
            admission, _seed(run_dir / SEED_FILE), _seed(run_dir / _INVITER_FILE)
        )

    def trustee(self, name: str) -> NodeIdentity:
        """Return an enrolled trustee."""
        return simulated_identity(self.enrolment, name, 1)

    def visitor(self, name: str) -> NodeIdentity | None:
        """Return who a visitor is, where somebody vouches for them."""
        if self.admission == ENROLLED:
            return simulated_identity(self.enrolment, name, 1)
        if self.admission == INVITED:
            return simulated_identity(self.inviter, name, 1)
        return None

    @property
    def enrolment_key(self) -> bytes:
        """The public enrolment key."""
        return EnrolmentKey.from_private_bytes(self.enrolment).public_key

    @property
    def inviter_key(self) -> bytes:
        """The public key of whoever signs invitations."""
        return EnrolmentKey.from_private_bytes(self.inviter).public_key

    def trust(self) -> Trust | None:
        """Return who vouches for visitors, as a worker asks."""
        if self.admission == ENROLLED:
            return Trust(self.enrolment_key, time.time)
        if self.admission == INVITED:
            return Trust(self.inviter_key, time.time)
        return None


def make_trustees(
    config: ExperimentConfig, ledger: Ledger, keys: Keys, store: SessionStore
) -> dict[str, Node]:
    """Make the trustees of a rehearsal."""
    bare = hosted_setup(config, ledger, keys.trustee, keys.enrolment_key)
    setup = NodeSetup(
        policy=bare.policy,
        ledger=ledger,
        source=bare.source,
        identity=keys.trustee,
        enrolment_key=keys.enrolment_key,
        inviter_key=keys.inviter_key,
    )
    trust = setup.trust()
    return {
        name: make_node(setup, name, (), trust, store) for name in trustee_names(config)
    }


def always(visitor: str, place: TakenSeat) -> bool:
    """Everybody answers."""
    return True


@dataclass(slots=True)
class Arrivals:
    """People who come one after another until the run is over.

    Attributes
    ----------
    seats : where they are seated.
    setup : what their devices share.
    answers : whether a visitor answers; whoever does not is gone.
    turned_away : how many came when no seat was free.
    """

    store: SeatStore
    setup: NodeSetup
    trust: Trust | None
    answers: Callable[[str, TakenSeat], bool] = always
    turned_away: int = 0
    pause_s: float = _PAUSE_S
    _terms: dict[str, SeatTerms] = field(default_factory=dict)
    _queue: SeatQueue = field(init=False)
    _believed: Trust | None = field(init=False)

    def __post_init__(self) -> None:
        """Let all who are there at the same time share a queue."""
        self._queue, self._believed = SeatQueue(self.store), self.setup.trust()

    async def come(self, at_once: int = _AT_ONCE) -> None:
        """Let people come until the run is over, so many at a time."""
        async with asyncio.TaskGroup() as group:
            for _ in range(at_once):
                group.create_task(self._come_again())

    async def _come_again(self) -> None:
        while (reason := await self.come_once()) != RUN_OVER:
            if reason:
                self.turned_away += 1
                await asyncio.sleep(self.pause_s)

    async def come_once(self) -> str:
        """Let one person come; return why they had no seat, or nothing."""
        visitor, arrival = secrets.token_hex(16), secrets.token_bytes(ARRIVAL_BYTES)
        place = await self._queue.take_seat(visitor, arrival)
        if isinstance(place, NoFreeSeat):
            return place.reason
        if not self.answers(visitor, place):
            return ""
        terms = self._read_terms(place.cohort_id)
        if terms is None:
            return ""  # the seats were closed in between
        node = make_node(self.setup, visitor, (visitor,), self._believed)
        node.admission = terms.admission
        body = await node.handle(terms.request_for(visitor))
        contribution = terms.check_answer(visitor, body)
        await self._queue.store_answer(visitor, arrival, place.cohort_id, contribution)
        return ""

    def _read_terms(self, cohort_id: str) -> SeatTerms | None:
        if cohort_id not in self._terms:
            cohort = self.store.read_cohort(cohort_id)
            if cohort is None:
                return None
            self._terms[cohort_id] = SeatTerms(cohort.terms, self.trust)
        return self._terms[cohort_id]


async def rehearse_arrivals(job: EngineJob) -> None:
    """Drive a job with people who arrive; see `wallflower.engines.registry.Engine`."""
    config, run_dir = job.config, job.run_dir
    assert config.visitors is not None
    keys = Keys.keep(config.visitors.admission, run_dir)
    with (
        Journal.resume(run_dir, config) as journal,
        EventLog(run_dir) as log,
        journal.open_spool() as spool,
        SeatStore.open(run_dir) as store,
    ):
        check_hosted_ledger(journal)
        sessions = SessionStore(run_dir / "nodes", durable=False)
        try:
            with hosted_ledger(run_dir, config.nodes.ledger) as ledger:
                trustees: Mapping[str, Node] = make_trustees(
                    config, ledger, keys, sessions
                )
                orchestrator = VisitorOrchestrator(
                    config,
                    journal,
                    MemoryTransport(trustees),
                    make_session_factory(
                        job.run_id, Trust(keys.enrolment_key, time.time)
                    ),
                    spool=spool,
                    listen=fan_out(log.listen, job.listen),
                    look_s=_LOOK_S,
                )
                setup = hosted_setup(config, ledger, keys.visitor, keys.enrolment_key)
                await _together(orchestrator, Arrivals(store, setup, keys.trust()))
        finally:
            sessions.close()


async def _together(orchestrator: VisitorOrchestrator, arrivals: Arrivals) -> None:
    """Let people come while the orchestrator works."""
    try:
        async with asyncio.TaskGroup() as group:
            coming = group.create_task(arrivals.come())
            await orchestrator.run()
            coming.cancel()
    except BaseExceptionGroup as failures:
        raise first_error(failures) from None


def _seed(path: Path) -> bytes:
    if not path.exists():
        key = EnrolmentKey.generate().private_bytes()
        path.touch(mode=0o600)
        path.write_bytes(key)
    return path.read_bytes()
