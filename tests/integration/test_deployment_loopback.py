"""The whole deployment on loopback: SuperLink with TLS and node authentication, two
SuperNodes, the gRPC server, `wallflower run --engine deployment`, `verify`.

Slow because Flower is real: four of its processes start, register and poll. The same
over several hosts is tests/integration/hosts.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import pytest

from deploy.harness.audit import audit
from deploy.harness.consortium import consortium
from deploy.harness.experiment import (
    BEST,
    Plan,
    node_environment,
    start_run,
    wallflower,
    write_experiment,
    write_node,
)
from tests.wallflower.test_run_commands import invoke
from wallflower.results.page import load_run
from wallflower.watching.run import PARTS, WatchedRun

NODES = ("clinic-a", "clinic-b")
# Without noise every sum can be recomputed; the noise itself has its own tests.
PLAN = Plan(users=1000, dropout="0", mechanism="non-private")


@dataclass(frozen=True)
class Deployed:
    """A finished run, and how many Flower messages each node got."""

    run_dir: Path
    messages: Sequence[int]


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Deployed:
    with consortium(
        tmp_path_factory.mktemp("deployed") / "site",
        NODES,
        lambda built, name: write_node(built, name, PLAN),
        namespaces=False,
        users=PLAN.users,
        on_disk=False,
        node_environment=lambda built, name: node_environment(built, name, PLAN),
    ) as built:
        experiment = write_experiment(built, PLAN, len(NODES))
        run = start_run(built, experiment, "loopback")
        assert run.finish(200) == 0, run.process.text()[-2000:]
        assert wallflower(built, "verify", str(run.run_dir)).returncode == 0
        heard = [built.node_processes[name].text() for name in NODES]
    return Deployed(run.run_dir, [text.count("Receiving: ") for text in heard])


@pytest.mark.slow
def test_a_deployment_on_loopback_gives_exact_sums_and_the_best_arm(
    deployed: Deployed,
) -> None:
    found = audit(deployed.run_dir, PLAN.truth)
    assert found.clean
    assert found.winner == BEST
    # However many batches there were: Flower carried one message per node.
    assert deployed.messages == [1] * len(NODES)


@pytest.mark.slow
async def test_a_deployments_run_directory_can_be_watched_and_reported(
    deployed: Deployed,
) -> None:
    run = WatchedRun(1, deployed.run_dir, lambda: None)
    await run.begin()
    assert "The run is over: one arm is left." in run.parts["now"]
    result = load_run(deployed.run_dir).result
    assert f"People invited {result.invited:,}, answered" in run.parts["now"]
    assert f"“{BEST}” is the best of" in run.parts["verdict"]
    assert "rehearsal" not in run.parts["verdict"]
    assert invoke("report", deployed.run_dir)[0] == 0
    report = (deployed.run_dir / "report.html").read_text(encoding="utf-8")
    assert [part for part in PARTS if run.parts[part] not in report] == []


@contextmanager
def shuffling(home: Path) -> Iterator[tuple[str, str]]:
    """Run a shuffler as a process; give its address and fingerprint."""
    command = [sys.executable, "-m", "wallflower", "shuffler", "--home", str(home)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            ready = json.loads(process.stdout.readline())
            yield ready["shuffler"], ready["fingerprint"]
        finally:
            process.terminate()
    assert process.returncode == 0


@pytest.mark.slow
def test_a_deployments_messages_go_through_the_shuffler(
    tmp_path: Path,
) -> None:
    home = tmp_path / "shuffler"
    with shuffling(home) as (address, fingerprint):
        plan = Plan(
            users=1000,
            dropout="0",
            backend="shuffle",
            server="semi-honest",
            secure_sum=(
                f'shuffle = "mixed"\nshuffler = "{address}"\n'
                f'shuffler-files = "{home / "operator"}"\n'
            ),
            policy=f'shufflers = ["{fingerprint}"]\n',
        )
        with consortium(
            tmp_path / "site",
            NODES,
            lambda built, name: write_node(built, name, plan),
            namespaces=False,
            users=plan.users,
            on_disk=False,
            node_environment=lambda built, name: node_environment(built, name, plan),
        ) as built:
            run = start_run(built, write_experiment(built, plan, len(NODES)), "mixed")
            assert run.finish(200) == 0, run.process.text()[-2000:]
            assert wallflower(built, "verify", str(run.run_dir)).returncode == 0
            reported = wallflower(built, "status", str(run.run_dir), "--format", "json")
    result = json.loads(reported.stdout)
    assert result["guarantee"]["mixing-delta"] == str(Fraction(1, 2**40))
    # Every cohort that was asked went through the shuffler, once.
    assert len(list((home / "released").iterdir())) == result["cohorts"]["asked"]
