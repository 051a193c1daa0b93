"""The start of a deployed run by its parts, wall and CPU: ``make bench-start``.

CPU seconds are those of all processes of the consortium, less what they use while they
idle: on a busy machine they say more than the wall clock.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from deploy.harness.consortium import consortium
from deploy.harness.experiment import (
    LabRun,
    Plan,
    node_environment,
    start_run,
    write_experiment,
    write_node,
)
from deploy.harness.network import namespaces_available
from deploy.harness.processes import end_in_order_on_sigterm, until

_IDLE_S = 5.0


def cpu_s() -> float:
    """Return the CPU seconds of everything that this process started."""
    own = psutil.Process()
    times = own.cpu_times()
    total = times.children_user + times.children_system
    for process in own.children(recursive=True):
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system
        total += times.children_user + times.children_system
    return float(total)


def parts(run: LabRun) -> dict[str, Callable[[], bool]]:
    """Name the parts of a start, each with how its end is seen."""
    log = run.run_dir / "flower.log"
    return {
        "the SuperLink has the run": lambda: (
            log.exists() and "Successfully started" in log.read_text()
        ),
        "the ServerApp has its gRPC server": (run.run_dir / "run-token.secret").exists,
        "all nodes are at the gRPC server": lambda: any(
            event["event"] == "RunStarted" for event in run.events()
        ),
    }


def measure(nodes: int, folder: Path) -> None:
    """Start one run on a consortium of so many nodes and say when what was there."""
    names = [f"n{number}" for number in range(nodes)]
    plan = Plan(users=20_000 // nodes, join_timeout_s=300)
    with consortium(
        folder,
        names,
        lambda built, name: write_node(built, name, plan),
        namespaces=namespaces_available(),
        users=100_000,
        on_disk=False,
        node_environment=lambda built, name: node_environment(built, name, plan),
    ) as built:
        built.await_nodes(nodes, 300)
        before, started = cpu_s(), time.monotonic()
        time.sleep(_IDLE_S)
        idle = (cpu_s() - before) / (time.monotonic() - started)
        experiment = write_experiment(built, plan, nodes)
        before, started = cpu_s(), time.monotonic()
        run = start_run(built, experiment, f"start-{nodes}")
        for name, is_over in parts(run).items():
            until(name, is_over, 300)
            wall_s = time.monotonic() - started
            used_s = cpu_s() - before - idle * wall_s
            sys.stdout.write(f"| {nodes} | {name} | {wall_s:.1f} | {used_s:.1f} |\n")
            sys.stdout.flush()
        run.finish(600)


def main() -> None:
    """Measure the sizes asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="+", default=[8, 16])
    end_in_order_on_sigterm()
    sys.stdout.write("| nodes | until | wall s | CPU s |\n|---|---|---|---|\n")
    for nodes in parser.parse_args().nodes:
        with tempfile.TemporaryDirectory(prefix="wf-start-") as folder:
            measure(nodes, Path(folder) / "site")


if __name__ == "__main__":
    main()
