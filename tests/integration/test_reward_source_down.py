"""A source of outcomes that is down uses nobody up, whatever carries the run."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from deploy.harness.processes import free_port
from tests.integration import test_flower_homes
from tests.integration.failing_rewards import Shop
from tests.integration.test_flower_app import config, engine_run, flower_run
from tests.integration.test_nodes_away_and_unwilling import TRANSPORTS, Places
from tests.integration.test_nodes_away_and_unwilling import (
    carry_out as carry_out_and_react,
)
from tests.integration.test_nodes_away_and_unwilling import (
    experiment as undecided_at_first,
)
from tests.support.slow_cases import slow_except
from wallflower.keys.store import KeyStore
from wallflower.protocol.errors import UnavailableError
from wallflower.protocol.files.sections import NodeSettings, RewardSettings
from wallflower.protocol.refusals import RefusalCode
from wallflower.results.result import read_result
from wallflower.strategy.config import (
    ExperimentConfig,
    ExperimentSettings,
    PolicySettings,
    PrivacySettings,
)
from wallflower.strategy.run.verify import verify
from wallflower.strategy.sections import SecureSumSettings, TransportSettings
from wallflower.strategy.store import events
from wallflower.strategy.store.journal import Journal

keys = test_flower_homes.keys  # the fixture
BACKENDS = ("secagg-plus", "sealed", "shuffle")


@pytest.fixture
def nobody_listens() -> str:
    """An address of this machine at which nothing answers."""
    return f"127.0.0.1:{free_port()}"


def experiment(address: str, backend: str, kind: str) -> ExperimentConfig:
    shuffled = backend == "shuffle"
    kind = "auto" if kind == "fast" else kind
    return config(
        experiment=ExperimentSettings("test", ("a", "b")),
        privacy=PrivacySettings("shuffle-dp" if shuffled else "dist-dp"),
        rewards=RewardSettings(source="grpc", address=address),
        policy=PolicySettings(first_batch=12 if shuffled else 60),
        nodes=NodeSettings(6, 60),
        secure_sum=SecureSumSettings(backend=backend),
        transport=TransportSettings(kind=kind, return_timeout_s=0.3),
    )


def carry_out(kind: str, asked: ExperimentConfig, run_dir: Path) -> None:
    if kind == "flower":
        flower_run(asked, run_dir)
    else:
        asyncio.run(engine_run("fast" if kind == "fast" else "local", asked, run_dir))


def invited(run_dir: Path) -> int:
    with Journal.read(run_dir) as journal:
        return read_result(journal).invited


# A simulation starts no shuffler of its own.
@pytest.mark.parametrize(
    ("kind", "backend"),
    [
        (kind, backend)
        for kind in ("memory", "grpc", "flower", "fast")
        for backend in BACKENDS
        if (kind, backend) != ("flower", "shuffle")
    ],
)
def test_nobody_is_invited_while_the_reward_server_is_down(
    kind: str, backend: str, nobody_listens: str, tmp_path: Path
) -> None:
    with pytest.raises(UnavailableError, match="reward"):
        carry_out(kind, experiment(nobody_listens, backend, kind), tmp_path / "run")
    assert invited(tmp_path / "run") == 0


@pytest.mark.parametrize("kind", ["grpc", "flower"])
def test_a_deployed_node_asks_its_own_source_before_it_agrees(
    kind: str, keys: KeyStore, nobody_listens: str, tmp_path: Path
) -> None:
    nodes = test_flower_homes.homes(keys, tmp_path / "homes")
    for home in (tmp_path / "homes").iterdir():
        text = (home / "node.toml").read_text().partition("[rewards]")[0]
        own = f'[rewards]\nsource = "grpc"\naddress = "{nobody_listens}"\n'
        (home / "node.toml").write_text(text + own)
    heard: list[events.Event] = []

    async def listen(event: events.Event) -> None:
        heard.append(event)

    asked = test_flower_homes.experiment(keys, kind, return_timeout_s=0.3)
    with pytest.raises(UnavailableError, match="reward-source-down") as caught:
        test_flower_homes.run(asked, nodes, tmp_path / "run", listen)
    assert invited(tmp_path / "run") == 0
    # Where a clinic keeps its outcomes is nobody else's business.
    assert nobody_listens not in f"{caught.value}{heard}"


@pytest.mark.parametrize("backend", ["secagg-plus", "sealed"])
@pytest.mark.parametrize("transport", slow_except(["memory"], TRANSPORTS))
@pytest.mark.parametrize("agreed", [False, True])
def test_a_source_that_closes_between_rounds_costs_nobody_and_is_waited_for(
    agreed: bool,
    transport: str,
    backend: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It closes when a round is over, or when its nodes have agreed to the next."""
    monkeypatch.setattr(Shop, "is_open", True)
    heard: list[events.Event] = []

    def waited() -> bool:
        return any(isinstance(event, events.WaitingForNodes) for event in heard)

    async def react(event: events.Event, places: Places) -> None:
        heard.append(event)
        if agreed:
            closes = isinstance(event, events.CohortAsked) and event.number == 2
            Shop.is_open &= not (closes and not waited())
        elif isinstance(event, events.RoundFinished) and event.number == 1:
            Shop.is_open = False
        if isinstance(event, events.WaitingForNodes):
            Shop.is_open = True

    asked = replace(
        undecided_at_first(transport, backend),
        rewards=RewardSettings(
            source="callable",
            function="tests.integration.failing_rewards:shop",
            test_users=("nobody",),
        ),
    )
    carry_out_and_react(asked, tmp_path / "run", monkeypatch, react)
    with Journal.read(tmp_path / "run") as journal:
        result = read_result(journal)
        assert [p for check in verify(journal) for p in check.problems] == []
    assert result.finished == "winner"
    assert result.losses == {}
    waits = [event for event in heard if isinstance(event, events.WaitingForNodes)]
    assert RefusalCode.REWARD_SOURCE_DOWN in waits[0].why
