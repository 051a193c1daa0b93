"""A run whose people arrive by browser, on loopback: `make demo-web`, and tests.

One process: an orchestrator, trustees that hold the key, a worker of `wallflower serve`
and, on another port and so another origin, the website of `examples/web`.
"""

from __future__ import annotations

import asyncio
import socket
import sys
import tempfile
import threading
import time
import webbrowser
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path

import uvicorn
from prometheus_client import CollectorRegistry
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from wallflower.clients.node.ledger import Ledger
from wallflower.clients.node.sessions import SessionStore
from wallflower.engines.arrivals import Arrivals, Keys, make_trustees
from wallflower.engines.population import hosted_setup
from wallflower.protocol.errors import JournalError
from wallflower.protocol.files.sections import RewardSettings
from wallflower.protocol.identity.enrolment import Trust
from wallflower.serve.gate import CallerGate, VisitorLimits
from wallflower.serve.http_protocol import server_config
from wallflower.serve.http_wire import HttpWire
from wallflower.serve.polls import Polls, VisitorMetrics
from wallflower.strategy.config import (
    ExperimentConfig,
    ExperimentSettings,
    PolicySettings,
)
from wallflower.strategy.run.arriving.orchestrator import VisitorOrchestrator
from wallflower.strategy.run.pending_cohorts import make_session_factory
from wallflower.strategy.sections import SecureSumSettings, VisitorSettings
from wallflower.strategy.store.journal import Journal
from wallflower.strategy.store.seat_sql import IS_ANY_FREE
from wallflower.strategy.store.seat_store import SeatQueue, SeatStore
from wallflower.strategy.store.seats import RUN_OVER
from wallflower.strategy.store.spool import Spool
from wallflower.strategy.transport.memory import MemoryTransport
from wallflower.strategy.transport.visitors.handler import VisitorHandler, VisitorRun

RUN = "onboarding"
ARMS = ("short-form", "long-form")
PAGES = Path(__file__).parents[1] / "examples" / "web"
_LOOK_S = 0.2
# The demo: answers leave at the end of the window; others come one by one.
_DEMO_WINDOW_S, _DEMO_PAUSE_S = 30.0, 1.0
_PLENTY = VisitorLimits(polls_per_s=10_000, polls_burst=100_000)


def experiment(
    first_round: int = 60, *, proved: bool = False, window_s: float | None = None
) -> ExperimentConfig:
    """Compare two forms; more people finish the short one."""
    return ExperimentConfig(
        experiment=ExperimentSettings("onboarding", ARMS, horizon=20 * first_round),
        policy=PolicySettings(first_batch=first_round // 2),
        rewards=RewardSettings(means=(0.8, 0.3), window_s=window_s),
        secure_sum=SecureSumSettings(
            corrupt=Fraction(1, 10),
            dropout=Fraction(1, 5),
            inputs="proved" if proved else "trusted",
        ),
        visitors=VisitorSettings("open", deadline_s=3600, answer_s=10),
    )


@dataclass
class Site:
    """A run that is under way: where it listens, and where its pages are."""

    run_dir: Path
    keys: Keys
    window_s: float | None  # of its pages
    server: str = ""
    pages: str = ""
    over: threading.Event = field(default_factory=threading.Event)
    arrivals: Arrivals | None = None
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)

    def facts(self) -> dict[str, object]:
        """Return what a page must know to join."""
        known: dict[str, object] = {"server": self.server, "run": RUN}
        return known if self.window_s is None else known | {"window": self.window_s}

    def answers(self) -> int:
        """Return how many answers the worker took."""
        labels = {"event": "answer", "reason": ""}
        name = "wallflower_visitor_polls_total"
        return int(self.registry.get_sample_value(name, labels) or 0)

    def refusals(self) -> int:
        """Return how many calls and polls the worker refused."""
        samples = [one for family in self.registry.collect() for one in family.samples]
        refused = (
            one.value
            for one in samples
            if one.name == "wallflower_visitor_refused_calls_total"
            or one.labels.get("event") == "refused"
        )
        return int(sum(refused))


@asynccontextmanager
async def _listening(app: uvicorn.Config) -> AsyncIterator[str]:
    server = uvicorn.Server(app)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        serving = asyncio.create_task(server.serve([listener]))
        try:
            yield f"http://localhost:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            await serving


def _pages(site: Site, folder: Path) -> uvicorn.Config:
    def facts(_: Request) -> Response:
        return JSONResponse(site.facts())

    routes = [
        Route("/run.json", facts),
        Mount("/", StaticFiles(directory=folder, html=True)),
    ]
    app = Starlette(routes=routes)
    return uvicorn.Config(
        app, log_config=None, access_log=False, lifespan="off", ws="none"
    )


async def serve_site(
    config: ExperimentConfig,
    folder: Path,
    started: Callable[[Site], None],
    stop: asyncio.Event,
    pages: Path = PAGES,
) -> None:
    """Operate the run until it is over, and serve until `stop`."""
    run_dir = folder / "run"
    Journal.create(run_dir, RUN, config, "deployment").close()
    assert config.visitors is not None
    keys = Keys.keep(config.visitors.admission, folder)
    assert config.rewards is not None
    site = Site(run_dir, keys, config.rewards.window_s)
    with ExitStack() as stack:
        store = stack.enter_context(SeatStore.open(run_dir))
        ledger = stack.enter_context(Ledger(folder / "trustees.sqlite"))
        sessions = SessionStore(folder / "trustees", durable=False)
        stack.callback(sessions.close)
        trustees = make_trustees(config, ledger, keys, sessions)
        setup = hosted_setup(config, ledger, keys.visitor, keys.enrolment_key)
        site.arrivals = Arrivals(store, setup, keys.trust())
        known = VisitorRun(RUN, ARMS, config.visitors.admission, keys.trust())
        async with _listening(_pages(site, pages)) as site.pages:
            gate = CallerGate(_PLENTY, (), time.monotonic)
            handler = VisitorHandler(known, SeatQueue(store))
            polls = Polls(handler, VisitorMetrics(site.registry), 256)
            app = HttpWire(polls, gate, [site.pages], _ready).app()
            async with _listening(server_config(app, gate)) as site.server:
                running = _operate(config, run_dir, trustees, keys, stop)
                operating = asyncio.create_task(running)
                # Nobody finds a seat before the key is made.
                free = False
                while not (free or operating.done()):
                    await asyncio.sleep(_LOOK_S)
                    free = bool(store.database.rows(IS_ANY_FREE))
                started(site)
                await operating
                site.over.set()
                await stop.wait()


async def _ready() -> bool:
    return True


async def _operate(
    config: ExperimentConfig,
    run_dir: Path,
    trustees: dict,  # type: ignore[type-arg]
    keys: Keys,
    stop: asyncio.Event,
) -> None:
    with Journal.resume(run_dir) as journal, Spool(run_dir / "spool.sqlite") as spool:
        trust = Trust(keys.enrolment_key, time.time)
        orchestrator = VisitorOrchestrator(
            config,
            journal,
            MemoryTransport(trustees),
            make_session_factory(RUN, trust),
            spool=spool,
            look_s=_LOOK_S,
        )
        running = asyncio.create_task(orchestrator.run())
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait([running, stopping], return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not running.done():
            running.cancel()
        try:
            await running
        except (asyncio.CancelledError, JournalError):
            if not stop.is_set():
                raise


class LiveSite:
    """A site in a thread of its own, for callers that are not asynchronous."""

    def __init__(
        self, config: ExperimentConfig, folder: Path, pages: Path = PAGES
    ) -> None:
        self._config, self._folder, self._pages = config, folder, pages
        self._up = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.site: Site

    def __enter__(self) -> Site:
        """Wait until both ports listen."""
        self._thread.start()
        assert self._up.wait(300), "the site does not come up"
        return self.site

    def __exit__(self, *_: object) -> None:
        """Stop the run if it is under way, and close both ports."""
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(30)

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()

        def started(site: Site) -> None:
            self.site = site
            self._up.set()

        await serve_site(self._config, self._folder, started, self._stop, self._pages)


async def _fill(arrivals: Arrivals) -> None:
    """Let people come, slowly enough for somebody to open a page and find a seat."""
    reason = ""
    while reason != RUN_OVER:
        await asyncio.sleep(_DEMO_PAUSE_S)
        reason = await arrivals.come_once()
    print("The run is over: everybody is shown the winner now.", flush=True)


async def _demo(seconds: float) -> None:
    """Serve the site; devices without a browser fill most seats."""
    stop = asyncio.Event()
    filling: list[asyncio.Task[None]] = []

    def started(site: Site) -> None:
        print(f"The site: {site.pages}  (survey: {site.pages}/survey.html)")
        print(f"The run:  {site.server}, record in {site.run_dir}", flush=True)
        if sys.stdout.isatty():
            webbrowser.open(site.pages)
        assert site.arrivals is not None
        filling.append(asyncio.create_task(_fill(site.arrivals)))

    with tempfile.TemporaryDirectory() as folder:
        serving = asyncio.create_task(
            serve_site(experiment(window_s=_DEMO_WINDOW_S), Path(folder), started, stop)
        )
        await asyncio.wait([serving], timeout=seconds)
        stop.set()
        for task in filling:
            task.cancel()
        await serving


if __name__ == "__main__":
    asyncio.run(_demo(float(sys.argv[1]) if len(sys.argv) > 1 else 3600.0))
