"""`PrivateBandit`: a Flower Strategy that runs a private experiment.

Usable from anyone's ServerApp::

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        config = experiment(context.run_config)
        run_dir = run_directory(context.run_config, config, context.run_id)
        strategy = PrivateBandit(config, run_dir)
        strategy.start(grid)
        print(strategy.arms)

Flower's own rounds exchange one train and one evaluate message per node; a bandit's
batch has as many exchanges as its secure sums need, for several cohorts at once. So
`start` is ours, and the hooks of Flower's rounds send nothing and report the arms.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from logging import INFO, WARNING
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.common import log
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy
from flwr.superlink.grid import HttpGrid

from wallflower.protocol.identity.enrolment import Trust
from wallflower.protocol.messages.port import NodeTransport
from wallflower.protocol.rewards.seeded import TEST_MODE
from wallflower.strategy.config import ExperimentConfig
from wallflower.strategy.flower_config import simulated_enrolment_key
from wallflower.strategy.flower_log import FlowerLog, shorten_failures
from wallflower.strategy.named_arm import NamedArm, describe_arms, name_arms
from wallflower.strategy.own_loop import run_to_end
from wallflower.strategy.run.orchestrator import Orchestrator
from wallflower.strategy.run.pending_cohorts import make_session_factory
from wallflower.strategy.run.run_state import round_after_retirement
from wallflower.strategy.store import events
from wallflower.strategy.store.journal import Journal
from wallflower.strategy.store.run_store import has_run
from wallflower.strategy.store.spool import Spool
from wallflower.strategy.transport.bundling import LINGER_S, BundlingTransport
from wallflower.strategy.transport.flower import FlowerTransport
from wallflower.strategy.transport.grpc.host import (
    enrolment_key,
    flower_grpc,
    revoked_serials,
)
from wallflower.strategy.transport.grpc.server import GrpcServer
from wallflower.strategy.transport.shuffler import shuffled, stated_shuffler
from wallflower.strategy.watch.observing import observe_run
from wallflower.strategy.watch.telemetry import fan_out

SIMULATION, DEPLOYMENT = "simulation", "deployment"
ESTIMATES = "estimates"  # the array that holds the arms' means, in the unit
_LOOK_S, _STILL_S = 0.05, 1.0

# Of every app that imports this, whichever of our functions fails in it.
shorten_failures()


def engine_of(grid: Grid) -> str:
    """Return how Flower runs the app: only a deployment's grid goes over a network."""
    return DEPLOYMENT if isinstance(grid, HttpGrid) else SIMULATION


class PrivateBandit(Strategy):
    """Finds the best arm of an experiment without learning anyone's outcome.

    Parameters
    ----------
    config : ExperimentConfig
        The experiment.
    run_dir : Path or str
        Where the journal lies; a run found there goes on where it ended.
    run_id : str
        For a new journal; the directory's name by default.
    engine : str
        ``simulation`` or ``deployment``: decides the transport where the config says
        ``auto``, and how many nodes to wait for. By default as Flower runs it, which
        the grid that `start` gets tells.
    trust_key : bytes, optional
        The public enrolment key, where the config does not name its file.
    listen : events.Listen
        Hears every event.

    Attributes
    ----------
    arms : tuple[NamedArm, ...]
        The arms as the record keeps them and their names, with means in [0, 1]. What
        Flower is given of them is in the unit of the outcomes.
    finished : str, optional
        Why the experiment is over.
    """

    def __init__(
        self,
        config: ExperimentConfig,
        run_dir: Path | str,
        *,
        run_id: str = "",
        engine: str = "",
        trust_key: bytes | None = None,
        listen: events.Listen = events.ignore,
    ) -> None:
        self.config = config
        self.run_dir = Path(run_dir)
        self.run_id = run_id or self.run_dir.name
        self.engine = engine
        self.arms: tuple[NamedArm, ...] = ()
        self.finished: str | None = None
        self.messages_sent = 0
        self.head = ""
        self._trust_key = trust_key
        self._listen = listen

    @property
    def transport(self) -> str:
        """How the work travels: ``flower`` or ``grpc``."""
        kind = self.config.transport.kind
        if kind != "auto":
            return kind
        return "flower" if self.engine == SIMULATION else "grpc"

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord | None = None,
        num_rounds: int = 0,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
    ) -> Result:
        """Run the experiment to its end.

        Parameters
        ----------
        grid : Grid
            Flower's.
        initial_arrays, train_config, evaluate_config :
            A bandit has no model and no training config; given ones are not used.
        num_rounds : int
            Stop after so many rounds; the run can be resumed. 0: until it is decided.
        timeout : float
            Not used: every stage has its own deadline in ``[transport]``.
        evaluate_fn : Callable, optional
            Called after every round with its number and the estimated means.

        Returns
        -------
        Result
            Per round: users, active arms and bounds; `arrays` holds the final
            estimates. Estimates and bounds are in the unit of the outcomes.
        """
        started = time.monotonic()
        self.engine = self.engine or engine_of(grid)
        log(INFO, "Starting %s strategy:", type(self).__name__)
        self.summary()
        log(INFO, "")
        result = Result()
        listeners = fan_out(self._listen, FlowerLog(self.config, num_rounds).listen)

        async def listen(event: events.Event) -> None:
            await listeners(event)
            if isinstance(event, events.ArmRetired):
                self._take(event)
            if isinstance(event, events.RoundFinished):
                self._note(event, result)
                if evaluate_fn is not None:
                    metrics = evaluate_fn(event.number, result.arrays)
                    if metrics is not None:
                        result.evaluate_metrics_serverapp[event.number] = metrics
                if event.number == num_rounds:
                    raise _EnoughError

        try:
            run_to_end(self._run(grid, listen))
        except _EnoughError:
            log(INFO, "Stopped after %d rounds; the run can be resumed", num_rounds)
        self._log_end(time.monotonic() - started)
        return result

    def _log_end(self, seconds: float) -> None:
        log(INFO, "")
        log(INFO, "Strategy execution finished in %.2fs", seconds)
        log(INFO, "")
        log(INFO, "Final results (%s):", self.finished or "stopped")
        log(INFO, "")
        for line in describe_arms(self.config, self.arms):
            log(INFO, "\t%s", line)
        log(INFO, "")
        log(INFO, "Record in %s, %d Flower messages", self.run_dir, self.messages_sent)
        if self.config.test_mode:
            log(WARNING, "%s", TEST_MODE)
        log(INFO, "Head of the record: %s", self.head)

    async def _run(self, grid: Grid, listen: events.Listen) -> None:
        with self._journal() as journal, self._spool(journal) as spool:
            trust = self._trust()
            place = stated_shuffler(self.config.secure_sum)
            async with (
                FlowerTransport(grid) as flower,
                self._port(flower, journal.run_id) as bare,
                shuffled(bare, place) as port,
                observe_run(
                    journal.run_id, bare.stats if isinstance(bare, GrpcServer) else None
                ) as watch,
            ):
                orchestrator = Orchestrator(
                    self.config,
                    journal,
                    port,
                    make_session_factory(journal.run_id, trust, place),
                    fan_out(watch, listen),
                    expected_nodes=await self._count_expected(flower),
                    spool=spool,
                )
                try:
                    await orchestrator.run()
                finally:
                    self.messages_sent = flower.messages_sent
            self._recall(journal)

    def _trust(self) -> Trust | None:
        """Return the key by which nodes are known; a simulation may need to make it."""
        key = self._trust_key
        if key is None and self.engine == SIMULATION:
            key = simulated_enrolment_key(self.config, self.run_dir)
        key = key or enrolment_key(self.config)
        revoked = revoked_serials(self.config)
        return None if key is None else Trust(key, time.time, revoked)

    @asynccontextmanager
    async def _port(
        self, flower: FlowerTransport, run_id: str
    ) -> AsyncIterator[NodeTransport]:
        if self.transport == "flower":
            async with BundlingTransport(flower, linger_s=self._linger_s()) as port:
                yield port
        else:
            async with flower_grpc(
                self.config, run_id, self.run_dir, flower
            ) as grpc_server:
                yield grpc_server

    def _linger_s(self) -> float:
        """Return how long a message to a node waits for the other arms' requests.

        A node works on one message at a time: an arm that misses its message waits for
        the end of the others' window.
        """
        window_s = self.config.window.seconds
        return LINGER_S if window_s is None else max(LINGER_S, min(5.0, window_s / 20))

    async def _count_expected(self, flower: FlowerTransport) -> int:
        """Count the nodes to wait for: all that Flower lists, once the list is still.

        In simulation the ServerApp starts before the nodes exist.
        """
        described = self.config.nodes.count if self.engine == SIMULATION else 0
        deadline = time.monotonic() + self.config.transport.join_timeout_s
        listed, still_since = 0, time.monotonic()
        while time.monotonic() < deadline:
            now_listed = len(await flower.flower_ids())
            if now_listed != listed:
                listed, still_since = now_listed, time.monotonic()
            still = time.monotonic() - still_since > _STILL_S
            if listed >= 2 and (listed == described or still):
                break
            await asyncio.sleep(_LOOK_S)
        if described and listed != described:
            log(
                WARNING,
                "Flower has %d nodes, the experiment describes %d; say so by "
                '--federation-config "num-supernodes=%d"',
                *(listed, described, described),
            )
        return max(2, min(listed, described) if described else listed)

    @contextmanager
    def _spool(self, journal: Journal) -> Iterator[Spool | None]:
        """Open the spool where nodes outlive the server; simulated ones do not."""
        if self.engine == SIMULATION:
            yield None
            return
        with journal.open_spool() as spool:
            yield spool

    def _journal(self) -> Journal:
        if has_run(self.run_dir):
            return Journal.resume(self.run_dir, self.config)
        return Journal.create(self.run_dir, self.run_id, self.config, self.engine)

    def _recall(self, journal: Journal) -> None:
        """Take the arms from the journal: a finished run has no events any more."""
        self.head = journal.head
        last = round_after_retirement(journal)
        if last is not None:
            self.arms = name_arms(self.config, last.views)
            self.finished = last.finished

    def _take(self, event: events.RoundFinished | events.ArmRetired) -> None:
        self.arms = name_arms(self.config, event.views)
        self.finished = event.finished

    def _note(self, event: events.RoundFinished, result: Result) -> None:
        self._take(event)
        estimates = [
            float("nan")
            if view.estimate is None
            else self.config.reward_range.mean(view.estimate)
            for view in event.views
        ]
        result.arrays = ArrayRecord({ESTIMATES: Array(np.array(estimates))})
        metrics = self._metrics()
        metrics["users"] = event.answered
        result.train_metrics_clientapp[event.number] = metrics

    def _metrics(self) -> MetricRecord:
        measured = self.config.reward_range
        return MetricRecord(
            {
                "active-arms": sum(view.active for view in self.arms),
                "lower": [measured.mean(float(view.lower)) for view in self.arms],
                "upper": [measured.mean(float(view.upper)) for view in self.arms],
            }
        )

    def summary(self) -> None:
        """Log what will be run, on which terms."""
        privacy, secure_sum = self.config.privacy, self.config.secure_sum
        log(INFO, "\t├── experiment: %s", self.config.experiment.name)
        if self.config.test_mode:
            log(WARNING, "\t├── %s", TEST_MODE)
        log(INFO, "\t├── arms: %s", ", ".join(self.config.experiment.arms))
        level = (
            "none"
            if self.config.test_mode
            else f"ε = {privacy.epsilon} of one answer, on the condition that the "
            "result states"
        )
        log(INFO, "\t├── privacy: %s, %s", privacy.mechanism, level)
        log(
            INFO,
            "\t├── secure sum: %s, %s server",
            secure_sum.backend,
            secure_sum.server,
        )
        log(INFO, "\t├── transport: %s", self.transport)
        log(INFO, "\t└── journal: %s", self.run_dir)

    # The hooks of Flower's own rounds, for tools that call them on any Strategy.

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Send nothing: there is no model to train."""
        return []

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Report the arms as they stand; replies of training are not ours."""
        return None, self._metrics() if self.arms else None

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Send nothing: outcomes are asked for once, under the users' budget."""
        return []

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Report the arms as they stand."""
        return self._metrics() if self.arms else None


class _EnoughError(Exception):
    """As many rounds as were asked for are done."""
