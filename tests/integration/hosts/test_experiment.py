"""A whole experiment over five hosts: ``make test-hosts`` prints what happened."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from deploy.harness.consortium import Consortium, consortium
from deploy.harness.experiment import (
    BEST,
    Plan,
    node_environment,
    start_run,
    wallflower,
    write_experiment,
    write_node,
)

pytestmark = [pytest.mark.hosts, pytest.mark.timeout(600)]

NODES = ("clinic-a", "clinic-b", "clinic-c", "clinic-d")
PLAN = Plan()


def test_an_experiment_over_five_hosts_finds_the_best_arm(tmp_path: Path) -> None:
    with consortium(
        tmp_path / "site",
        NODES,
        lambda built, name: write_node(built, name, PLAN),
        users=PLAN.users,
        node_environment=lambda built, name: node_environment(built, name, PLAN),
    ) as built:
        _show_hosts(built)
        built.await_nodes(len(NODES))
        experiment = write_experiment(built, PLAN, len(NODES))
        run = start_run(built, experiment, "experiment")
        code = run.finish(300)
        print(f"\n$ {' '.join(run.process.command[-7:])}\n{run.process.text()[-3000:]}")
        assert code == 0
        result = wallflower(built, "status", str(run.run_dir))
        print(result.stdout)
        verified = wallflower(built, "verify", str(run.run_dir))
        print(f"$ wallflower verify\n{verified.stdout}")
        assert verified.returncode == 0
        status = wallflower(built, "status", str(run.run_dir), "--format", "json")
        assert BEST in json.dumps(json.loads(status.stdout))
        batches = [e for e in run.events() if e["event"] == "RoundFinished"]
        [last] = [view for view in batches[-1]["views"] if view["active"]]
        assert PLAN.arms[last["arm"]] == BEST
        for name in NODES:
            text = built.node_processes[name].text()
            assert text.count("Receiving: ") == 1  # one Flower message per node and run


def _show_hosts(built: Consortium) -> None:
    print("\nhosts")
    for name, host in built.hosts.items():
        print(f"  {name:<10} {host.address}")
    print(
        f"  gRPC       {built.grpc_host}:{built.grpc_port} (operator's second address)"
    )
    print(f"  nodes dial {built.fleet} (nginx), SuperLink listens on loopback only")
