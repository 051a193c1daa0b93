"""The Flower app as it is, on a Grid in this process: real ServerApp and ClientApp."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from fractions import Fraction
from pathlib import Path

import pytest
from flwr.app import (
    Array,
    ArrayRecord,
    Context,
    Message,
    MetricRecord,
    RecordDict,
)
from flwr.clientapp import ClientApp

from wallflower.clients.client_app import app as client_app
from wallflower.clients.client_app import serve_nodes
from wallflower.clients.rewards.source import Pull
from wallflower.engines.in_process_grid import InProcessGrid, partitions
from wallflower.engines.registry import EngineJob, find_engine
from wallflower.protocol.errors import UnavailableError
from wallflower.protocol.files.sections import NodeSettings, RewardSettings
from wallflower.strategy.config import (
    ExperimentConfig,
    ExperimentSettings,
    PolicySettings,
)
from wallflower.strategy.private_bandit import (
    ESTIMATES,
    SIMULATION,
    PrivateBandit,
)
from wallflower.strategy.sections import (
    SecureSumSettings,
    TestSettings,
    TransportSettings,
)
from wallflower.strategy.server_app import app as server_app
from wallflower.strategy.store import events
from wallflower.strategy.store.event_log import decode
from wallflower.strategy.store.journal import Journal

MEANS = (0.2, 0.9, 0.3)


def config(**sections: object) -> ExperimentConfig:
    """An experiment whose noise and rewards follow from a seed: no false alarms."""
    given: dict[str, object] = {
        "experiment": ExperimentSettings("test", ("a", "b", "c")),
        "policy": PolicySettings(first_batch=15),
        "nodes": NodeSettings(12, 60),
        "rewards": RewardSettings(means=MEANS),
        "test": TestSettings(noise_seed=7),
    }
    return ExperimentConfig(**(given | sections))  # type: ignore[arg-type]


def run_config(experiment: ExperimentConfig, run_dir: Path) -> dict[str, str]:
    return {
        "config": experiment.canonical(),
        "run-dir": str(run_dir),
        "engine": SIMULATION,
    }


def flower_run(experiment: ExperimentConfig, run_dir: Path, *, nodes: int = 0) -> None:
    """Run the ServerApp against the ClientApp, as Flower's simulation would."""
    output = run_config(experiment, run_dir)
    count = nodes or experiment.nodes.count
    with InProcessGrid(client_app, partitions(count), output) as grid:
        context = Context(1, 0, {}, RecordDict(), dict(output))
        server_app(grid=grid, context=context)


def sums(run_dir: Path) -> Mapping[tuple[int, int], tuple[int | None, int, int]]:
    """What every cohort gave: (batch, arm) → released sum, analyzed total, users."""
    with Journal.read(run_dir) as journal:
        return {
            (cohort.batch, cohort.arm): (
                cohort.result.released,
                cohort.result.total,
                cohort.result.survivors,
            )
            for cohort in journal.cohorts()
            if cohort.result is not None
        }


def decided(run_dir: Path) -> Mapping[tuple[int, int], tuple[int, int]]:
    """What the policy saw: (batch, arm) → analyzed total, users."""
    return {place: (total, users) for place, (_, total, users) in sums(run_dir).items()}


async def engine_run(engine: str, experiment: ExperimentConfig, run_dir: Path) -> None:
    Journal.create(run_dir, "run", experiment, engine).close()
    job = EngineJob(experiment, run_dir, "run", events.ignore)
    await find_engine(engine).run(job)


def best(run_dir: Path) -> list[bool]:
    with Journal.read(run_dir) as journal:
        last = journal.last_round()
    assert last is not None
    assert last.finished == "winner"
    return [view.active for view in last.views]


@pytest.mark.parametrize("backend", ["sealed", "secagg-plus"])
def test_the_flower_app_finds_the_best_arm(backend: str, tmp_path: Path) -> None:
    flower_run(config(secure_sum=SecureSumSettings(backend=backend)), tmp_path)
    assert best(tmp_path) == [False, True, False]


def test_noise_from_the_operating_system_finds_it_too(tmp_path: Path) -> None:
    # Wrong with probability at most 1/20 by the experiment's own promise, at gaps of
    # 0.6 far more rarely: no failure in 100 runs.
    flower_run(config(test=TestSettings()), tmp_path)
    assert best(tmp_path) == [False, True, False]


def test_a_lying_server_is_withstood_by_simulated_nodes_too(tmp_path: Path) -> None:
    flower_run(config(secure_sum=SecureSumSettings(server="malicious")), tmp_path)
    assert best(tmp_path) == [False, True, False]


@pytest.mark.parametrize("backend", ["sealed", "secagg-plus"])
async def test_flower_the_local_and_the_fast_engine_agree_on_every_sum(
    backend: str, tmp_path: Path
) -> None:
    experiment = config(secure_sum=SecureSumSettings(backend=backend))
    local, fast, flower = tmp_path / "local", tmp_path / "fast", tmp_path / "flower"
    await engine_run("local", experiment, local)
    await engine_run("fast", experiment, fast)
    await asyncio.to_thread(flower_run, experiment, flower)
    assert sums(local) == sums(flower)
    assert decided(fast) == decided(flower)
    assert len(sums(local)) >= 6


def test_the_log_of_events_tells_the_whole_run(tmp_path: Path) -> None:
    flower_run(config(), tmp_path)
    lines = (tmp_path / "events.jsonl").read_text().splitlines()
    heard = [decode(line) for line in lines]
    assert isinstance(heard[0], events.RunStarted)
    assert heard[0].nodes == 12
    assert isinstance(heard[-1], events.RoundFinished)
    assert heard[-1].finished == "winner"


def test_a_seeded_run_says_in_flowers_log_that_it_is_a_test(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    flower_run(config(), tmp_path)
    output = [r for r in caplog.records if "TEST MODE, no privacy" in r.getMessage()]
    assert [record.levelname for record in output] == ["WARNING", "WARNING"]
    assert "ε" not in caplog.text


def test_flowers_log_ends_with_the_head_of_the_record(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    flower_run(config(), tmp_path)
    with Journal.read(tmp_path) as journal:
        assert caplog.messages[-1] == f"Head of the record: {journal.head}"


def test_a_finished_run_is_not_run_again(tmp_path: Path) -> None:
    experiment = config()
    flower_run(experiment, tmp_path)
    before = sums(tmp_path)
    flower_run(experiment, tmp_path)
    assert sums(tmp_path) == before


def test_a_run_stopped_after_a_batch_goes_on_with_users_never_asked(
    tmp_path: Path,
) -> None:
    experiment = config()
    output = run_config(experiment, tmp_path)
    with InProcessGrid(client_app, partitions(12), output) as grid:
        strategy = PrivateBandit(experiment, tmp_path, engine=SIMULATION)
        strategy.start(grid, num_rounds=1)
        assert strategy.finished is None
    flower_run(experiment, tmp_path)
    assert best(tmp_path) == [False, True, False]
    with Journal.read(tmp_path) as journal:
        asked = [
            (node, user) for _, node, users in journal.invitations() for user in users
        ]
    assert len(asked) == len(set(asked))


def test_anyones_server_app_can_start_the_strategy(tmp_path: Path) -> None:
    experiment = config()
    seen: list[tuple[int, int]] = []

    def evaluate(batch: int, arrays: ArrayRecord) -> MetricRecord:
        seen.append((batch, len(arrays[ESTIMATES].numpy())))
        return MetricRecord({"seen": batch})

    output = run_config(experiment, tmp_path)
    with InProcessGrid(client_app, partitions(12), output) as grid:
        strategy = PrivateBandit(experiment, tmp_path, engine=SIMULATION)
        result = strategy.start(grid, evaluate_fn=evaluate)
    assert strategy.finished == "winner"
    assert [view.active for view in strategy.arms] == [False, True, False]
    batches = list(result.train_metrics_clientapp)
    assert batches == list(range(1, len(batches) + 1))
    assert result.train_metrics_clientapp[batches[-1]]["active-arms"] == 1
    assert seen == [(batch, 3) for batch in batches]
    assert list(result.evaluate_metrics_serverapp) == batches
    assert isinstance(result.arrays[ESTIMATES], Array)
    assert strategy.messages_sent > 12


def test_every_arm_of_a_strategy_has_its_name(tmp_path: Path) -> None:
    experiment = config()
    output = run_config(experiment, tmp_path)
    with InProcessGrid(client_app, partitions(12), output) as grid:
        strategy = PrivateBandit(experiment, tmp_path)
        strategy.start(grid)
        assert [arm.name for arm in strategy.arms if arm.active] == ["b"]
        again = PrivateBandit(experiment, tmp_path)
        again.start(grid)
    assert again.arms == strategy.arms


def test_flowers_log_shows_every_round_as_of_a_stock_strategy(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    experiment = config()
    output = run_config(experiment, tmp_path)
    with InProcessGrid(client_app, partitions(12), output) as grid:
        PrivateBandit(experiment, tmp_path).start(grid, num_rounds=5)
    told = caplog.messages
    first = told.index("[ROUND 1/5]")
    assert told[first + 1] == "configure_round: Asked 45 users about 3 arms"
    assert told[first + 2].startswith("aggregate_round: 45 users summed so far, 0 lost")
    assert [line[1:6] for line in told[first + 3 : first + 6]] == [
        "├──> ",
        "├──> ",
        "└──> ",
    ]
    assert told[first + 3].startswith("\t├──> b ")
    assert any(line.startswith("Strategy execution finished in ") for line in told)
    assert "Final results (winner):" in told


class Kept:
    """A source that answers with what the app kept on its node for every arm."""

    closed = 0

    def __init__(self, context: Context) -> None:
        self._metrics = context.state.metric_records["kept"]

    async def pull(self, pull: Pull) -> list[object]:
        return [self._metrics[pull.arm_name]] * len(pull.users)

    async def close(self) -> None:
        type(self).closed += 1
        raise OSError("a file that cannot be closed costs nobody's answer")


def keeping_app(rewards: Callable[[Context], Kept]) -> ClientApp:
    """A ClientApp that keeps what it was sent, as one that was trained would."""
    app = serve_nodes(ClientApp(), rewards=rewards)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        context.state["kept"] = message.content["kept"]
        return Message(RecordDict(), reply_to=message)

    return app


def run_after_training(
    app: ClientApp, run_dir: Path, *, trained: bool = True
) -> PrivateBandit:
    soon = TransportSettings(return_timeout_s=0.1)
    without = config(rewards=None, transport=soon)
    with InProcessGrid(app, partitions(12), run_config(without, run_dir)) as grid:
        kept = RecordDict({"kept": MetricRecord({"a": 0.1, "b": 0.9, "c": 0.2})})
        if trained:
            grid.send_and_receive(
                [Message(kept, node, "train") for node in grid.get_node_ids()]
            )
        strategy = PrivateBandit(without, run_dir)
        strategy.start(grid)
    return strategy


def test_a_reward_source_knows_what_its_app_kept_in_flowers_context(
    tmp_path: Path,
) -> None:
    Kept.closed = 0
    strategy = run_after_training(keeping_app(Kept), tmp_path)
    assert [arm.name for arm in strategy.arms if arm.active] == ["b"]
    assert Kept.closed >= 12  # a source for a message, none left open


def test_a_source_that_cannot_be_made_costs_nobody_anything(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(UnavailableError, match="reward-source-down"):
        run_after_training(keeping_app(Kept), tmp_path, trained=False)
    assert caplog.messages.count("the ClientApp's rewards cannot be made") == 1
    with Journal.read(tmp_path) as journal:
        assert not any(journal.used())


def test_what_flower_is_given_of_the_arms_is_in_the_unit(tmp_path: Path) -> None:
    rewards = RewardSettings(
        means=(-10, 130, 10), range=(Fraction(-50), Fraction(150)), unit="€"
    )
    experiment = config(rewards=rewards)
    output = run_config(experiment, tmp_path)
    given: list[list[float]] = []

    def evaluate(batch: int, arrays: ArrayRecord) -> None:
        given.append(list(arrays[ESTIMATES].numpy()))

    with InProcessGrid(client_app, partitions(12), output) as grid:
        strategy = PrivateBandit(experiment, tmp_path, engine=SIMULATION)
        result = strategy.start(grid, evaluate_fn=evaluate)
    with Journal.read(tmp_path) as journal:
        last = journal.last_round()
    assert last is not None
    wanted = {
        field: pytest.approx([200 * getattr(view, field) - 50 for view in last.views])
        for field in ("estimate", "lower", "upper")
    }
    metrics = result.train_metrics_clientapp[last.number]
    assert given[-1] == list(result.arrays[ESTIMATES].numpy()) == wanted["estimate"]
    for shown in (metrics, strategy.aggregate_evaluate(1, [])):
        assert shown is not None
        assert shown["lower"] == wanted["lower"]
        assert shown["upper"] == wanted["upper"]
