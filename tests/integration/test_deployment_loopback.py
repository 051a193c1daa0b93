"""The whole deployment on loopback: SuperLink with TLS and node authentication, two
SuperNodes, the desk, `wallflower run --engine deployment`, `verify`.

Slow because Flower is real: four of its processes start, register and poll. The same
over several hosts is tests/integration/hosts.
"""

from __future__ import annotations

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

NODES = ("clinic-a", "clinic-b")
# Without noise every sum can be recomputed; the noise itself has its own tests.
PLAN = Plan(users=1000, dropout="0", mechanism="non-private")


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_deployment_on_loopback_gives_exact_sums_and_the_best_arm(
    tmp_path: Path,
) -> None:
    with consortium(
        tmp_path / "site",
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
        for name in NODES:
            # However many batches there were: Flower carried one message per node.
            assert built.node_processes[name].text().count("Receiving: ") == 1
    found = audit(run.run_dir, PLAN.truth)
    assert found.clean
    assert found.winner == BEST
