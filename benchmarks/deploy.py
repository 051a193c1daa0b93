"""One batch of ours beside one round of Flower's stock SecAgg+, same SuperLink, same
SuperNodes: ``make bench-deploy``.

Stock: every stage is one Flower message per node, polled over HTTP, with a new process
on the node each time. Ours: one Flower message per node and *run*, then one gRPC
stream. Both carry one secure sum over all nodes; ours carries one for every arm.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from deploy.harness.consortium import Consortium, consortium
from deploy.harness.experiment import (
    Plan,
    node_environment,
    start_run,
    write_experiment,
    write_node,
)
from deploy.harness.flower import ROOT
from deploy.harness.network import namespaces_available
from deploy.harness.processes import end_in_order_on_sigterm

STOCK = ROOT / "benchmarks" / "stock-secagg"


@dataclass(frozen=True, slots=True)
class Row:
    """What one size gave."""

    nodes: int
    stock_round_s: float
    our_batches_s: tuple[float, ...]
    our_start_s: float
    our_whole_s: float
    arms: int
    memory_batch_s: float
    grpc_round_s: float
    supernode_mb: float
    superlink_mb: float

    @property
    def batch_s(self) -> float:
        """The middle one of our batches."""
        return statistics.median(self.our_batches_s)

    @property
    def ratio(self) -> float:
        """How many of our batches fit in one stock round."""
        return self.stock_round_s / self.batch_s


def stock_round(built: Consortium, nodes: int) -> float:
    """Run one round of stock SecAgg+; gives its seconds without Flower's start-up."""
    report = built.folder / f"stock-{nodes}.json"
    # Stock SecAgg+ wants an odd number of shares, or all nodes.
    settings = (
        f"nodes={nodes} rounds=1 shares={nodes} threshold={nodes // 2 + 1} "
        f'report="{report}"'
    )
    built.operator.flwr(
        "run", str(STOCK), "wallflower", "--stream", "-c", settings, timeout_s=900
    )
    seconds: float = json.loads(report.read_text())["seconds"][0]
    return seconds


def our_run(
    built: Consortium, plan: Plan, nodes: int
) -> tuple[list[float], float, float]:
    """Run a whole experiment; gives seconds of each batch, of the start, of all."""
    experiment = write_experiment(built, plan, nodes)
    started = time.monotonic()
    run = start_run(built, experiment, f"bench-{nodes}")
    run.until_event("RunStarted", timeout_s=300)
    start_s = time.monotonic() - started
    code = run.finish(600)
    if code != 0:
        raise SystemExit(f"wallflower run ended with {code}; log: {run.process.log}")
    return batch_seconds(run.events()), start_s, time.monotonic() - started


def local_batch(folder: Path, plan: Plan, nodes: int, kind: str) -> float:
    """Run the same experiment in one process; gives the middle batch's seconds.

    With ``memory`` what is left is our own work (noise, crypto, journal) of all nodes
    and the server together; with ``grpc`` the gRPC server and its TLS come on top.
    """
    arms = ", ".join(f'"{arm}"' for arm in plan.arms)
    means = ", ".join(str(mean) for mean in plan.means)
    experiment = folder / f"local-{kind}.toml"
    experiment.write_text(
        f'[experiment]\nname = "local"\narms = [{arms}]\n\n'
        f'[privacy]\nmechanism = "{plan.mechanism}"\nepsilon = 1\n\n'
        f'[policy]\nname = "elimination"\nfirst-batch = {plan.first_batch}\n\n'
        f'[secure-sum]\nbackend = "{plan.backend}"\ncorrupt = {plan.corrupt}\n'
        f'dropout = {plan.dropout}\n\n[transport]\nkind = "{kind}"\n\n'
        f"[nodes]\ncount = {nodes}\nusers = {plan.users}\n\n"
        f'[rewards]\nsource = "synthetic"\nmeans = [{means}]\n'
    )
    run_dir = folder / f"local-{kind}"
    command = [sys.executable, "-m", "wallflower", "run", str(experiment)]
    subprocess.run(
        [*command, "--run-dir", str(run_dir)], cwd=ROOT, capture_output=True, check=True
    )
    lines = (run_dir / "events.jsonl").read_text(encoding="utf-8").splitlines()
    return statistics.median(batch_seconds(map(json.loads, lines)))


def batch_seconds(events: Iterable[Mapping[str, Any]]) -> list[float]:
    """Return how long each batch took, as the run's own events say."""
    return [e["seconds"] for e in events if e["event"] == "RoundFinished"]


def memory_mb(pid: int) -> float:
    """Return the proportional memory of a process and all it started."""
    parent = psutil.Process(pid)
    family = [parent, *parent.children(recursive=True)]
    return sum(process.memory_full_info().pss for process in family) / 2**20


def measure(nodes: int, folder: Path, *, namespaces: bool, stock: bool) -> Row:
    """Build a consortium of so many nodes and run both on it."""
    names = [f"n{number}" for number in range(nodes)]
    plan = Plan(
        users=20_000 // nodes,
        stage_timeout_s=120,
        join_timeout_s=300,
        means=(0.5, 0.5, 0.58),  # close enough for several batches
    )
    with consortium(
        folder,
        names,
        lambda built, name: write_node(built, name, plan),
        namespaces=namespaces,
        users=100_000,
        on_disk=False,  # stock gets its faster state: 7 messages/s instead of 2
        node_environment=lambda built, name: node_environment(built, name, plan),
    ) as built:
        built.await_nodes(nodes, 300)
        supernode = memory_mb(built.node_processes[names[0]].pid)
        superlink = memory_mb(built.supervisor.processes["superlink"].pid)
        batches, start_s, whole_s = our_run(built, plan, nodes)
        stock_s = stock_round(built, nodes) if stock else float("nan")
    memory = local_batch(folder, plan, nodes, "memory")
    grpc_server = local_batch(folder, plan, nodes, "grpc")
    return Row(
        nodes,
        stock_s,
        tuple(batches),
        start_s,
        whole_s,
        len(plan.arms),
        memory,
        grpc_server,
        supernode,
        superlink,
    )


def table(rows: list[Row]) -> str:
    """Return the rows as the table of docs/operations.md."""
    lines = [
        "| nodes | stock SecAgg+, one round | ours, one batch (all arms) | ratio | "
        "all nodes in one process: memory / gRPC server | our start, once a run | "
        "our whole experiment | SuperNode | SuperLink |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        spread = f"{min(row.our_batches_s):.2f}–{max(row.our_batches_s):.2f}"
        lines.append(
            f"| {row.nodes} | {row.stock_round_s:.1f} s | {row.batch_s:.2f} s "
            f"({spread}; {len(row.our_batches_s)} batches, {row.arms} arms) | "
            f"{row.ratio:.0f}× | {row.memory_batch_s:.2f} / {row.grpc_round_s:.2f} s | "
            f"{row.our_start_s:.1f} s | {row.our_whole_s:.1f} s | "
            f"{row.supernode_mb:.0f} MB | {row.superlink_mb:.0f} MB |"
        )
    return "\n".join(lines)


def main() -> None:
    """Measure the sizes asked for and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="+", default=[8, 16])
    parser.add_argument("--no-stock", action="store_true", help="ours alone")
    arguments = parser.parse_args()
    end_in_order_on_sigterm()
    namespaces = namespaces_available()
    where = "network namespaces" if namespaces else "loopback"
    sys.stdout.write(f"hosts: {where}\n")
    rows: list[Row] = []
    for nodes in arguments.nodes:
        with tempfile.TemporaryDirectory(prefix="wf-bench-") as folder:
            row = measure(
                nodes,
                Path(folder) / "site",
                namespaces=namespaces,
                stock=not arguments.no_stock,
            )
        rows.append(row)
        sys.stdout.write(f"{row}\n")
        sys.stdout.flush()
    sys.stdout.write(table(rows) + "\n")


if __name__ == "__main__":
    main()
