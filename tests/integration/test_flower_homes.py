"""Nodes with homes of their own, as in a deployment, on a Grid in this process."""

from __future__ import annotations

import contextlib
import datetime
import shutil
import stat
from collections import Counter
from pathlib import Path

import pytest
from flwr.app import ConfigRecord
from flwr.clientapp import ClientApp

from tests.clients.host.test_home import call
from tests.integration.test_flower_app import best
from tests.support.slow_cases import slow_cases
from wallflower.clients.client_app import app as client_app
from wallflower.engines.in_process_grid import InProcessGrid
from wallflower.keys.store import KeyStore
from wallflower.protocol.errors import RefusalError, UnavailableError
from wallflower.protocol.files.sections import NodeSettings
from wallflower.protocol.messages import flower as flower_record
from wallflower.protocol.wire.node_pb2 import Describe, NodeRequest, Task
from wallflower.strategy.config import (
    ExperimentConfig,
    ExperimentSettings,
    PolicySettings,
)
from wallflower.strategy.private_bandit import PrivateBandit
from wallflower.strategy.sections import SecureSumSettings, TransportSettings
from wallflower.strategy.store import events
from wallflower.strategy.store.journal import Journal

NAMES = tuple(f"clinic-{number}" for number in range(6))
# Noise is the operating system's. At gaps of 0.7 the wrong arm won in none of 60 runs;
# the experiment's own promise is one in twenty.
NODE_FILE = """
[node]
users = 60
keys = "{keys}"

[policy]
largest-epsilon = 1
smallest-cohort = 10
smallest-floor-fraction = 0.1

[rewards]
means = [0.1, 0.9, 0.2]
"""


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> KeyStore:
    store = KeyStore(tmp_path_factory.mktemp("keys") / "store")
    store.create("Test", ["127.0.0.1"], days=1)
    now = datetime.datetime.now(datetime.UTC)
    for name in NAMES:
        store.add_node(name, capacity=60, days=1, now=now)
    return store


def experiment(
    keys: KeyStore, kind: str, server: str = "malicious", **transport: object
) -> ExperimentConfig:
    return ExperimentConfig(
        experiment=ExperimentSettings("test", ("a", "b", "c"), horizon=360),
        policy=PolicySettings(first_batch=30),
        secure_sum=SecureSumSettings(
            enrolment=keys.operator / "enrolment.pub", server=server
        ),
        transport=TransportSettings(
            kind=kind,
            certificate=keys.operator / "server.crt",
            private_key=keys.operator / "server.key",
            **transport,  # type: ignore[arg-type]
        ),
        nodes=NodeSettings(len(NAMES), 60),
    )


def homes(keys: KeyStore, folder: Path) -> dict[int, dict[str, str]]:
    """Furnish every node; give Flower's numbers and node configs."""
    for name in NAMES:
        (folder / name).mkdir(parents=True)
        text = NODE_FILE.format(keys=keys.nodes / name)
        (folder / name / "node.toml").write_text(text)
    return {
        7000 + number: {"wallflower-home": str(folder / name)}
        for number, name in enumerate(NAMES)
    }


def run(
    config: ExperimentConfig,
    nodes: dict[int, dict[str, str]],
    run_dir: Path,
    listen: events.Listen = events.ignore,
    client_app: ClientApp = client_app,
) -> PrivateBandit:
    strategy = PrivateBandit(config, run_dir, engine="deployment", listen=listen)
    with InProcessGrid(client_app, nodes, workers=len(nodes)) as grid:
        strategy.start(grid)
    return strategy


def test_every_node_gets_one_flower_message_and_connects_to_the_grpc_server(
    keys: KeyStore, tmp_path: Path
) -> None:
    nodes = homes(keys, tmp_path / "homes")
    strategy = run(experiment(keys, "grpc"), nodes, tmp_path / "run")
    assert best(tmp_path / "run") == [False, True, False]
    assert strategy.messages_sent == len(NAMES)


def test_the_work_may_travel_as_flower_messages_as_well(
    keys: KeyStore, tmp_path: Path
) -> None:
    nodes = homes(keys, tmp_path / "homes")
    strategy = run(experiment(keys, "flower"), nodes, tmp_path / "run")
    assert best(tmp_path / "run") == [False, True, False]
    assert strategy.messages_sent > len(NAMES)


def test_a_node_that_connected_to_a_run_takes_no_flower_message_for_it(
    keys: KeyStore, tmp_path: Path
) -> None:
    nodes = homes(keys, tmp_path / "homes")
    run(experiment(keys, "grpc"), nodes, tmp_path / "run")
    with Journal.read(tmp_path / "run") as journal:
        run_id = journal.run_id

    def work(run_id: str) -> ConfigRecord:
        request = NodeRequest(
            run_id=run_id, tasks=[Task(task_id="d", describe=Describe())]
        )
        fields: dict[str, str | bytes] = {
            flower_record.BODY: request.SerializeToString()
        }
        return call(flower_record.WORK, nodes[7000], fields)

    with pytest.raises(RefusalError, match="run-connected"):
        work(run_id)
    assert work("another run")


def test_nodes_are_known_by_the_names_on_their_certificates(
    keys: KeyStore, tmp_path: Path
) -> None:
    run(experiment(keys, "grpc"), homes(keys, tmp_path / "homes"), tmp_path / "run")
    with Journal.read(tmp_path / "run") as journal:
        assert {node for _, node, _ in journal.invitations()} == set(NAMES)


def test_the_runs_secret_is_the_servers_alone(keys: KeyStore, tmp_path: Path) -> None:
    run(experiment(keys, "grpc"), homes(keys, tmp_path / "homes"), tmp_path / "run")
    mode = (tmp_path / "run" / "run-token.secret").stat().st_mode
    assert stat.S_IMODE(mode) == 0o600


@pytest.mark.parametrize("kind", ["grpc", "flower", *slow_cases("polling")])
def test_the_next_run_asks_only_people_who_have_not_spent_their_budget(
    kind: str, keys: KeyStore, tmp_path: Path
) -> None:
    nodes = homes(keys, tmp_path / "homes")
    if kind == "polling":  # half of the nodes poll the server
        kind = "grpc"
        for name in NAMES[:3]:
            path = tmp_path / "homes" / name / "node.toml"
            text = path.read_text().replace("[node]", '[node]\nconnection = "polling"')
            path.write_text(text)
    run(experiment(keys, kind), nodes, tmp_path / "first")
    lost: Counter[str] = Counter()

    async def listen(event: events.Event) -> None:
        if isinstance(event, events.CohortEnded):
            lost.update(dict(event.losses))

    with contextlib.suppress(UnavailableError):  # too few may be left for any round
        run(experiment(keys, kind, attempts=1), nodes, tmp_path / "second", listen)
    assert lost["budget-exceeded"] == 0
    with Journal.read(tmp_path / "first") as journal:
        asked = {(node, user) for _, node, users in journal.used() for user in users}
    with Journal.read(tmp_path / "second") as journal:
        again = {(node, user) for _, node, users in journal.used() for user in users}
        askable = journal.count_askable()
    assert not asked & again
    assert askable.left_out == len(asked)


@pytest.mark.parametrize("kind", ["grpc", "flower"])
def test_an_operator_that_asks_to_be_believed_gets_no_answer_from_enrolled_nodes(
    kind: str, keys: KeyStore, tmp_path: Path
) -> None:
    nodes = homes(keys, tmp_path / "homes")
    believing = experiment(keys, kind, "semi-honest", attempts=1)
    with pytest.raises(UnavailableError, match="terms: threat-too-weak"):
        run(believing, nodes, tmp_path / "run")
    with Journal.read(tmp_path / "run") as journal:
        assert list(journal.invitations()) == []


@pytest.mark.slow  # waits for the node that does not come
def test_a_revoked_node_is_not_let_in(keys: KeyStore, tmp_path: Path) -> None:
    store = KeyStore(tmp_path / "keys")
    shutil.copytree(keys.root, store.root)
    store.revoke("clinic-3")
    nodes = homes(store, tmp_path / "homes")
    run(experiment(store, "grpc", join_timeout_s=15.0), nodes, tmp_path / "run")
    with Journal.read(tmp_path / "run") as journal:
        asked = {node for _, node, _ in journal.invitations()}
    assert "clinic-3" not in asked
    assert len(asked) >= 2
