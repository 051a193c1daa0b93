"""A small world of people who arrive: real trustees, real seats, real contributions.

The clock is the event loop's, so that deadlines of days pass in virtual time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.orchestration import SwitchedPort
from wallflower.clients.node.ledger import Ledger
from wallflower.clients.node.node import Node
from wallflower.clients.node.sessions import SessionStore
from wallflower.engines.arrivals import Arrivals, Keys, make_trustees
from wallflower.engines.population import hosted_setup
from wallflower.protocol.files.sections import RewardSettings
from wallflower.protocol.identity.enrolment import Trust
from wallflower.strategy.config import (
    ExperimentConfig,
    ExperimentSettings,
    PolicySettings,
)
from wallflower.strategy.run.arriving.orchestrator import VisitorOrchestrator
from wallflower.strategy.run.pending_cohorts import make_session_factory
from wallflower.strategy.run.verify import verify
from wallflower.strategy.sections import TransportSettings, VisitorSettings
from wallflower.strategy.store import events
from wallflower.strategy.store.database import Database, Transaction
from wallflower.strategy.store.events import Event
from wallflower.strategy.store.journal import Journal
from wallflower.strategy.store.seat_store import SeatStore
from wallflower.strategy.store.seats import NoFreeSeat, TakenSeat
from wallflower.strategy.store.spool import Spool
from wallflower.strategy.transport.memory import MemoryTransport

RUN = "arriving"


def config(**sections: object) -> ExperimentConfig:
    given: dict[str, object] = {
        "experiment": ExperimentSettings("test", ("a", "b"), horizon=400),
        "policy": PolicySettings(first_batch=30),
        "rewards": RewardSettings(means=(0.02, 0.98)),
        "transport": TransportSettings(attempts=2, return_timeout_s=5),
        "visitors": VisitorSettings("open", deadline_s=3600, answer_s=60),
    }
    return ExperimentConfig(**(given | sections))  # type: ignore[arg-type]


@dataclass
class Site:
    """Trustees, seats, journal, and people who come until the run is over."""

    config: ExperimentConfig
    run_dir: Path
    port: SwitchedPort
    keys: Keys
    arrivals: Arrivals
    heard: list[Event] = field(default_factory=list)
    react: Callable[[Event], None] = lambda event: None
    after_write: Callable[[], None] = lambda: None  # by the orchestrator

    async def listen(self, event: Event) -> None:
        self.heard.append(event)
        self.react(event)

    async def operate(self) -> None:
        """Run the orchestrator alone, as one process of its own would."""
        with (
            Journal.resume(self.run_dir) as journal,
            Spool(self.run_dir / "spool.sqlite") as spool,
        ):
            notice_writes(journal.database, self.after_write)
            loop = asyncio.get_running_loop()
            trust = Trust(self.keys.enrolment_key, lambda: 0.0)
            await VisitorOrchestrator(
                self.config,
                journal,
                self.port,
                make_session_factory(RUN, trust),
                spool=spool,
                listen=self.listen,
                clock=loop.time,
                look_s=20,
            ).run()

    async def run(self) -> None:
        """Run the orchestrator while people come."""
        coming = asyncio.create_task(self.arrivals.come(30))
        try:
            await self.operate()
        finally:
            coming.cancel()
            await asyncio.wait([coming])

    def problems(self) -> list[str]:
        with Journal.read(self.run_dir) as journal:
            checks = verify(journal)
        return [problem for check in checks for problem in check.problems]


def finish(heard: list[Event]) -> events.RoundFinished:
    """Return the last event, which ends a round."""
    last = heard[-1]
    assert isinstance(last, events.RoundFinished)
    return last


def shown_to_a_newcomer(there: Site) -> NoFreeSeat:
    """Return what somebody new is told, for whom there is no seat."""
    place = there.arrivals.store.take_seat("f" * 32, b"0" * 16)
    assert isinstance(place, NoFreeSeat)
    return place


def notice_writes(database: Database, notice: Callable[[], None]) -> None:
    """Call `notice` after each transaction, once it is kept."""
    plain = database.transaction

    @contextmanager
    def noticed() -> Iterator[Transaction]:
        with plain() as connection:
            yield connection
        notice()

    database.transaction = noticed  # type: ignore[method-assign]


@asynccontextmanager
async def site(
    tmp_path: Path,
    experiment: ExperimentConfig | None = None,
    answers: Callable[[str, TakenSeat], bool] = lambda visitor, place: True,
    trustees_of: Callable[..., dict[str, Node]] = make_trustees,
) -> AsyncIterator[Site]:
    experiment = experiment or config()
    run_dir = tmp_path / "run"
    Journal.create(run_dir, RUN, experiment, "deployment").close()
    assert experiment.visitors is not None
    keys = Keys.keep(experiment.visitors.admission, tmp_path)
    clock = asyncio.get_running_loop().time
    with ExitStack() as stack:
        store = stack.enter_context(SeatStore.open(run_dir, clock))
        ledger = stack.enter_context(Ledger(tmp_path / "ledger.sqlite"))
        sessions = SessionStore(tmp_path / "trustees", durable=False)
        stack.callback(sessions.close)
        trustees = trustees_of(experiment, ledger, keys, sessions)
        setup = hosted_setup(experiment, ledger, keys.visitor, keys.enrolment_key)
        arrivals = Arrivals(store, setup, keys.trust(), answers, pause_s=120)
        port = SwitchedPort(MemoryTransport(dict(trustees)))
        yield Site(experiment, run_dir, port, keys, arrivals)
