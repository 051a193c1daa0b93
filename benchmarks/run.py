"""Whole experiments against Flower's stock SecAgg+: users a second, messages a user.

``make bench-run``. Rounds of one secure sum over n users, timed without start-up: ours
on the local engine and in Flower's simulation, Flower's stock SecAgg+ in the same
simulation, all in the same run on the same machine, so the ratios stand although the
machine is shared. Ours includes what the stock rounds leave out: rewards, ledger,
exact noise, journal, decisions. Memory is what 1,000 further nodes add to the process.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Collection, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import psutil

from wallflower.clients.node.ledger import Ledger
from wallflower.engines.flower import LOG_FILE, run_simulation
from wallflower.engines.population import hosted_nodes
from wallflower.engines.process import flwr_run, simulation_superlink
from wallflower.engines.registry import EngineJob
from wallflower.protocol.files.sections import NodeSettings, RewardSettings
from wallflower.protocol.messages.port import Answer, NodeId, NodeTransport, Request
from wallflower.protocol.secure_sum.threat import Sizes, Threat, sparse_graph_size
from wallflower.results.run_folder import ledger_path
from wallflower.strategy.config import (
    ExperimentConfig,
    ExperimentSettings,
    PolicySettings,
)
from wallflower.strategy.run.orchestrator import Orchestrator
from wallflower.strategy.run.pending_cohorts import make_session_factory
from wallflower.strategy.sections import SecureSumSettings
from wallflower.strategy.store import events
from wallflower.strategy.store.entries import INVITED, ROUND
from wallflower.strategy.store.journal import Journal
from wallflower.strategy.transport.grpc.gc_tuning import TunedGc
from wallflower.strategy.transport.memory import MemoryTransport

STOCK_APP = Path(__file__).parent / "stock-secagg"
TENTH = Fraction(1, 10)
_PARTS = "stock,local,simulation,memory"
_GOAL = 300  # times the stock's users a CPU second, 128 nodes with one user each
DEFAULT = SecureSumSettings().backend
_MESSAGES = re.compile(r"(\d+) Flower messages")


@dataclass(frozen=True)
class Row:
    """One measured line."""

    what: str
    cohort: int
    users_per_node: int
    users_per_second: float
    messages_per_user: float
    cpu_ms_per_user: float | None = None
    ratio: float | None = None
    cpu_ratio: float | None = None


def experiment(
    cohort: int, users_per_node: int, rounds: int, backend: str = DEFAULT
) -> ExperimentConfig:
    """Two arms nobody can tell apart, batches of `cohort` users, for `rounds` rounds.

    With one user per node every cohort meets new nodes; with more, the same 64 nodes.
    """
    users = 2 * cohort * rounds
    one_each = users_per_node == 1
    count = users if one_each else max(2, cohort // users_per_node)
    return ExperimentConfig(
        experiment=ExperimentSettings("bench", ("a", "b"), horizon=users),
        policy=PolicySettings(first_batch=cohort, ratio=Fraction(1001, 1000)),
        nodes=NodeSettings(count, 1 if one_each else users // count + 10),
        rewards=RewardSettings(means=(0.5, 0.5)),
        secure_sum=SecureSumSettings(backend=backend),
    )


class CountingPort:
    """Counts the requests that really travel."""

    def __init__(self, port: NodeTransport) -> None:
        self._port = port
        self.messages = 0

    async def nodes(self) -> Sequence[NodeId]:
        """Name the nodes that can be asked now."""
        return await self._port.nodes()

    async def ask(
        self, requests: Sequence[Request], *, timeout_s: float
    ) -> AsyncGenerator[Answer, None]:
        """Ask and count."""
        self.messages += len(requests)
        async with aclosing(self._port.ask(requests, timeout_s=timeout_s)) as answers:
            async for answer in answers:
                yield answer


def throughput(run_dir: Path) -> tuple[int, float]:
    """Return the users in all sums and the seconds from first asked to last decided."""
    with Journal.read(run_dir) as journal:
        users = sum(c.result.survivors for c in journal.cohorts() if c.result)
        chain = journal.entries()
    first = min(entry.at for entry in chain if entry.kind == INVITED)
    last = max(entry.at for entry in chain if entry.kind == ROUND)
    return users, last - first


async def local(
    cohort: int,
    users_per_node: int,
    rounds: int,
    folder: Path,
    backend: str = DEFAULT,
) -> Row:
    """Measure the local engine: real clients, crypto, ledger and journal."""
    config = experiment(cohort, users_per_node, rounds, backend)
    with Journal.create(folder, "bench", config, "local") as journal:
        with Ledger(ledger_path(folder)) as ledger:
            port = CountingPort(MemoryTransport(hosted_nodes(config, ledger, None)))
            settled = TunedGc()  # as the engine does
            settled.tune(config.nodes.count, time.monotonic())
            cpu = time.process_time()
            await Orchestrator(
                config,
                journal,
                port,
                make_session_factory("bench", None),
                expected_nodes=config.nodes.count,
            ).run()
            cpu = time.process_time() - cpu
            settled.close()
    users, seconds = throughput(folder)
    messages = port.messages - config.nodes.count  # one each to describe themselves
    return Row(
        f"Wallflower, local, {backend}",
        cohort,
        users_per_node,
        users / seconds,
        messages / users,
        1000 * cpu / users,
    )


async def simulation(
    cohort: int, users_per_node: int, rounds: int, folder: Path
) -> Row:
    """Measure the same experiment in Flower's simulation, start-up left out."""
    config = experiment(cohort, users_per_node, rounds)
    Journal.create(folder, "bench", config, "simulation").close()
    await run_simulation(EngineJob(config, folder, "bench", events.ignore))
    users, seconds = throughput(folder)
    found = _MESSAGES.findall((folder / LOG_FILE).read_text(encoding="utf-8"))
    messages = int(found[-1]) - 2 * config.nodes.count  # hello and describe
    return Row(
        "Wallflower, Flower simulation",
        cohort,
        users_per_node,
        users / seconds,
        messages / users,
    )


async def stock(nodes: int, rounds: int, folder: Path) -> Row:
    """Measure Flower's stock SecAgg+; the first round has Ray's start-up in it."""
    # The smallest graph that keeps the promise of Bell et al. 2020: the fastest that
    # the stock protocol may be. Its k is even, since k + 1 shares must be odd.
    sizes = sparse_graph_size(Threat(TENTH, TENTH), nodes)
    assert sizes is not None
    report = folder / "report.json"
    settings = _stock_settings(folder, nodes, rounds + 1, sizes, report)
    federation = {
        "num-supernodes": nodes,
        "client-resources-num-cpus": 1,
        "init-args-num-cpus": psutil.cpu_count() or 1,
    }
    async with simulation_superlink(folder) as site:
        run = await flwr_run(site, STOCK_APP, settings, federation)
    if not run.completed:
        raise RuntimeError(f"the stock run ended as {run.status}")
    measured = _read_json(report)
    seconds = sum(measured["seconds"][1:])
    per_user = measured["messages"] / (nodes * (rounds + 1))
    return Row(
        "Flower's stock SecAgg+, simulation",
        nodes,
        1,
        nodes * rounds / seconds,
        per_user,
        1000 * sum(measured["cpu_seconds"][1:]) / (nodes * rounds),
    )


def _read_json(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def _stock_settings(
    folder: Path, nodes: int, rounds: int, sizes: Sizes, report: Path
) -> Path:
    folder.mkdir(parents=True)
    path = folder / "run-config.toml"
    path.write_text(
        f"nodes = {nodes}\nrounds = {rounds}\nshares = {sizes.helpers + 1}\n"
        f'threshold = {sizes.threshold}\nreport = "{report}"\n'
    )
    return path


def memory_per_1000_nodes() -> float:
    """Return the MB that 1,000 further one-user nodes add to a whole local run."""
    small, large = _peak_mb(5), _peak_mb(15)  # 500 and 1,500 nodes
    return large - small


def _peak_mb(rounds: int) -> float:
    """Run in a fresh process, so that nothing measured before counts."""
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.run", "--peak"]
    done = subprocess.run(
        [*command, str(rounds)], check=True, capture_output=True, text=True
    )
    return float(done.stdout)


def print_peak(rounds: int) -> None:
    """Run rounds of 2 × 50 users on 100 nodes each; print the process's peak in MB."""
    with tempfile.TemporaryDirectory(prefix="wf-bench-") as name:
        asyncio.run(local(50, 1, rounds, Path(name) / "run"))
    # Not ru_maxrss, which a child inherits from the process that started it.
    status = Path("/proc/self/status").read_text()
    print(int(status.partition("VmHWM:")[2].split()[0]) / 1024)


def measure(
    sizes: Sequence[int], parts: Collection[str], folder: Path
) -> Iterator[Row]:
    """Measure part by part; ratios refer to equal n."""
    stocks: dict[int, Row] = {}
    largest, number = sizes[-1], 0

    def place() -> Path:
        nonlocal number
        number += 1
        return folder / str(number)

    for nodes in sizes:
        ours = [_of_one_user(nodes, place())] if "local" in parts else []
        if "stock" in parts:
            row = asyncio.run(stock(nodes, 2 if nodes > 32 else 3, place()))
            stocks[nodes] = row
            yield row
            # Once before and once after: the machine's speed drifts within minutes.
            ours += [_of_one_user(nodes, place())] if ours else []
        if ours:
            yield _against(_mean(ours), stocks.get(nodes))
    if "local" in parts:
        row = asyncio.run(local(64 * 100, 100, 10, place()))
        yield _against(row, stocks.get(largest))
    if "simulation" in parts:
        for nodes in sizes:
            row = asyncio.run(simulation(nodes, 1, 3 if nodes > 32 else 6, place()))
            yield _against(row, stocks.get(nodes))
        row = asyncio.run(simulation(64 * 100, 100, 4, place()))
        yield _against(row, stocks.get(largest))


def _of_one_user(cohort: int, folder: Path) -> Row:
    """Measure enough rounds: a run deals its key once, whatever its length."""
    return asyncio.run(local(cohort, 1, 3000 // cohort, folder))


def _mean(rows: Sequence[Row]) -> Row:
    """Return what all runs took together, a user."""
    slowness = statistics.fmean(1 / row.users_per_second for row in rows)
    return dataclasses.replace(
        rows[0],
        users_per_second=1 / slowness,
        messages_per_user=statistics.fmean(row.messages_per_user for row in rows),
        cpu_ms_per_user=statistics.fmean(row.cpu_ms_per_user or 0 for row in rows),
    )


def _against(row: Row, stock_row: Row | None) -> Row:
    if stock_row is None:
        return row
    cpu_ratio = None
    if row.cpu_ms_per_user is not None and stock_row.cpu_ms_per_user is not None:
        cpu_ratio = stock_row.cpu_ms_per_user / row.cpu_ms_per_user
    ratio = row.users_per_second / stock_row.users_per_second
    return dataclasses.replace(row, ratio=ratio, cpu_ratio=cpu_ratio)


def main() -> int:
    """Print the table, or one JSON envelope."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--format", choices=("human", "json"), default="human")
    parser.add_argument("--sizes", default="32,128", help="users in a cohort")
    parser.add_argument("--parts", default=_PARTS, help=f"default: {_PARTS}")
    parser.add_argument("--peak", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peak is not None:
        print_peak(options.peak)
        return 0
    started = time.monotonic()
    sizes, parts = [int(n) for n in options.sizes.split(",")], options.parts.split(",")
    if unknown := set(parts) - set(_PARTS.split(",")):
        parser.error(f"no such part: {', '.join(unknown)}; there are {_PARTS}")
    with tempfile.TemporaryDirectory(prefix="wf-bench-") as name:
        folder = Path(name)
        rows = []
        for row in measure(sizes, parts, folder):
            rows.append(row)
            passed = time.monotonic() - started
            print(_line(row), f"after {passed:.0f} s", file=sys.stderr, flush=True)
    memory = memory_per_1000_nodes() if "memory" in parts else None
    if options.format == "json":
        envelope = {
            "schema_version": 1,
            "command": "bench-run",
            "rows": [dataclasses.asdict(row) for row in rows],
            "mb_per_1000_nodes": memory,
        }
        print(json.dumps(envelope))
        return 0
    print(
        "| what | users in a cohort | users per node | users/s | messages/user "
        "| CPU ms/user | × stock | × stock by CPU |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for row in rows:
        print(_line(row))
    for row in rows:
        if row.cpu_ratio is not None and (row.cohort, row.users_per_node) == (128, 1):
            word = "reached" if row.cpu_ratio >= _GOAL else "NOT REACHED"
            print(f"{row.what}: {row.cpu_ratio:.0f}× stock by CPU (≥ {_GOAL}): {word}")
    if memory is not None:
        print(f"Memory: {memory:.1f} MB per 1,000 nodes (local engine, one user each).")
    print(f"Measured in {time.monotonic() - started:.0f} s.")
    return 0


def _line(row: Row) -> str:
    cpu = "" if row.cpu_ms_per_user is None else f"{row.cpu_ms_per_user:,.2f}"
    ratio = "" if row.ratio is None else f"{row.ratio:,.0f}×"
    cpu_ratio = "" if row.cpu_ratio is None else f"{row.cpu_ratio:,.0f}×"
    return (
        f"| {row.what} | {row.cohort:,} | {row.users_per_node} "
        f"| {row.users_per_second:,.1f} | {row.messages_per_user:.3f} "
        f"| {cpu} | {ratio} | {cpu_ratio} |"
    )


if __name__ == "__main__":
    sys.exit(main())
