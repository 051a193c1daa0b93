"""What the Flower app takes its engine, its transport and its nodes from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from flwr.app import (
    ArrayRecord,
    ConfigRecord,
    Context,
    RecordDict,
)
from flwr.superlink.grid import HttpGrid

from tests.integration.test_flower_app import best, config, flower_run, run_config
from wallflower.clients.client_app import app as client_app
from wallflower.engines.in_process_grid import InProcessGrid, partitions
from wallflower.protocol.errors import ConfigError, InputError
from wallflower.protocol.files.sections import NodeSettings
from wallflower.strategy.private_bandit import (
    PrivateBandit,
    engine_of,
)
from wallflower.strategy.sections import TestSettings, TransportSettings
from wallflower.strategy.server_app import app as server_app
from wallflower.strategy.store.journal import Journal


def test_flowers_own_rounds_would_send_nothing(tmp_path: Path) -> None:
    strategy = PrivateBandit(config(), tmp_path)
    with InProcessGrid(client_app, partitions(2)) as grid:
        arrays, record = ArrayRecord(), ConfigRecord()
        assert list(strategy.configure_train(1, arrays, record, grid)) == []
        assert list(strategy.configure_evaluate(1, arrays, record, grid)) == []
    assert strategy.aggregate_train(1, []) == (None, None)
    assert strategy.aggregate_evaluate(1, []) is None


def test_who_says_nothing_of_an_engine_gets_the_one_that_flower_runs(
    tmp_path: Path,
) -> None:
    experiment = config(test=TestSettings())
    output = run_config(experiment, tmp_path)
    with InProcessGrid(client_app, partitions(12), output) as grid:
        strategy = PrivateBandit(experiment, tmp_path)
        strategy.start(grid)
    assert (strategy.engine, strategy.transport) == ("simulation", "flower")
    assert engine_of(object.__new__(HttpGrid)) == "deployment"


def test_nodes_beyond_those_described_say_that_nobody_lives_there(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    flower_run(config(), tmp_path, nodes=15)
    assert best(tmp_path) == [False, True, False]
    assert "the node failed" not in caplog.text
    assert "node left out" not in caplog.text


def test_the_transport_follows_the_engine_unless_it_is_chosen(tmp_path: Path) -> None:
    def transport(engine: str, kind: str = "auto") -> str:
        chosen = config(transport=TransportSettings(kind=kind))
        return PrivateBandit(chosen, tmp_path, engine=engine).transport

    assert transport("simulation") == "flower"
    assert transport("deployment") == "grpc"
    assert transport("deployment", "flower") == "flower"


@pytest.mark.parametrize("nodes", [8, 14])
def test_more_or_fewer_nodes_than_described_still_run_and_are_reported(
    nodes: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    flower_run(config(), tmp_path, nodes=nodes)
    assert best(tmp_path) == [False, True, False]
    assert f"Flower has {nodes} nodes, the experiment describes 12" in caplog.text


def test_what_ends_a_server_app_is_noted_for_its_launcher(tmp_path: Path) -> None:
    experiment = config()
    Journal.create(tmp_path, "run", experiment, "local").close()
    changed = config(nodes=NodeSettings(13, 60))
    with pytest.raises(ConfigError):
        flower_run(changed, tmp_path)
    note = json.loads((tmp_path / "failure.json").read_text())
    assert (note["error"], note["exit"]) == ("ConfigError", 2)


def test_a_run_config_without_an_experiment_is_refused(tmp_path: Path) -> None:
    with InProcessGrid(client_app, partitions(2)) as grid:
        context = Context(1, 0, {}, RecordDict(), {"experiment": ""})
        with pytest.raises(InputError, match="names no file"):
            server_app(grid=grid, context=context)
