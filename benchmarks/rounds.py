"""What many rounds and many arms cost: CPU, memory, journal, and looking at the run.

Three arms that nobody can tell apart are asked in small rounds of nearly one size, so
that nothing is decided. Each row is a run of its own in a process of its own; `status`,
`verify` and `report` are the commands, with the start of Python in their time. CPU per
round is the mean over the last 25 rounds. ``--arms`` adds a run of many arms.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import sqlite3
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path

from wallflower.engines.registry import EngineJob, find_engine
from wallflower.protocol.files.sections import NodeSettings, RewardSettings
from wallflower.results.result import read_result
from wallflower.strategy.config import (
    ExperimentConfig,
    ExperimentSettings,
    PolicySettings,
)
from wallflower.strategy.policy_names import ELIMINATION
from wallflower.strategy.store.events import Event, RoundFinished
from wallflower.strategy.store.journal import Journal

ROUNDS = (50, 200, 500, 1000)
SIZE = 16  # people of each arm in the first round; 17 in all others
PER_ARM = 50  # people of each of many arms
LAST = 25  # rounds whose mean CPU time is shown
NODES = 8
RATIO = Fraction(1000001, 1000000)
SPENT_INSIDE = "SELECT coalesce(sum(length(policy_state)), 0) FROM round"


@dataclass(frozen=True, slots=True)
class Row:
    """One run and what looking at it takes; times are seconds of CPU."""

    policy: str
    arms: int
    rounds: int
    people: int
    run_s: float
    round_ms: float
    memory_mb: float
    journal_kb: float
    state_kb: float
    result_s: float
    status_s: float
    verify_s: float
    report_s: float


def experiment(policy: str, arms: int, rounds: int) -> ExperimentConfig:
    """Return an experiment of so many small rounds; nothing is to be decided."""
    indexed = policy != ELIMINATION
    # An index policy asks all arms once, and then one arm a round.
    cohorts = rounds - 1 + arms if indexed else rounds * arms
    people = cohorts * (SIZE + 1)
    names = tuple(f"arm {number}" for number in range(arms))
    return ExperimentConfig(
        experiment=ExperimentSettings("rounds", names, horizon=people),
        policy=PolicySettings(policy, ratio=RATIO, first_batch=SIZE),
        nodes=NodeSettings(NODES, people // NODES + SIZE * arms),
        rewards=RewardSettings(means=(0.5,) * arms),
    )


def many_arms(arms: int) -> ExperimentConfig:
    """Return an experiment of many arms in rounds as they are planned by themselves."""
    names = tuple(f"arm {number}" for number in range(arms))
    people = PER_ARM * arms
    return ExperimentConfig(
        experiment=ExperimentSettings("arms", names, horizon=people),
        nodes=NodeSettings(NODES, people // NODES + arms),
        rewards=RewardSettings(means=(0.6, *(0.5,) * (arms - 1))),
    )


def play(config: ExperimentConfig, engine: str, run_dir: Path) -> dict[str, float]:
    """Run an experiment in this process; return what it took."""
    at: list[float] = [time.process_time()]

    async def listen(event: Event) -> None:
        if isinstance(event, RoundFinished):
            at.append(time.process_time())

    Journal.create(run_dir, run_dir.name, config, engine).close()
    job = EngineJob(config, run_dir, run_dir.name, listen)
    begun = time.process_time()
    asyncio.run(find_engine(engine).run(job))
    ended = time.process_time()
    with Journal.read(run_dir) as journal:
        result = read_result(journal)
        result.as_json()
    last = at[-LAST - 1 :]
    return {
        "rounds": len(at) - 1,
        "people": result.invited,
        "run_s": ended - begun,
        "round_ms": 1000 * (last[-1] - last[0]) / max(1, len(last) - 1),
        "result_s": time.process_time() - ended,
        "memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def measure(policy: str, arms: int, rounds: int, engine: str, folder: Path) -> Row:
    """Run one experiment in a process of its own and look at it."""
    run_dir = folder / f"{policy}-{arms}-{rounds}"
    words = [policy, str(arms), str(rounds), engine, str(run_dir)]
    found = json.loads(_command("benchmarks.rounds", "--one", *words)[1])
    journal = run_dir / "journal.sqlite"
    database = sqlite3.connect(journal)
    (state,) = database.execute(SPENT_INSIDE).fetchone()
    database.close()
    looks = {
        f"{name}_s": _command("wallflower", name, str(run_dir))[0]
        for name in ("status", "verify", "report")
    }
    return Row(
        policy=policy,
        arms=arms,
        rounds=int(found.pop("rounds")),
        people=int(found.pop("people")),
        journal_kb=journal.stat().st_size / 1024,
        state_kb=state / 1024,
        **found,
        **looks,
    )


def _command(module: str, *words: str) -> tuple[float, str]:
    """Run a command; return its CPU seconds and what it printed."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-m", module, *words],
        capture_output=True,
        text=True,
        check=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return used, done.stdout


def main() -> None:
    """Print a row for every number of rounds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", default=",".join(map(str, ROUNDS)))
    parser.add_argument("--policies", default=ELIMINATION)
    parser.add_argument("--engine", default="local")
    parser.add_argument("--arms", type=int, default=0)
    parser.add_argument("--one", nargs=5, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        policy, arms, rounds, engine, run_dir = asked.one
        config = (
            experiment(policy, int(arms), int(rounds))
            if int(rounds)
            else many_arms(int(arms))
        )
        print(json.dumps(play(config, engine, Path(run_dir))))
        return
    jobs = [
        (policy, 3, int(rounds))
        for policy in asked.policies.split(",")
        for rounds in asked.rounds.split(",")
        if rounds
    ]
    if asked.arms:
        jobs.append((ELIMINATION, asked.arms, 0))
    head = False
    with tempfile.TemporaryDirectory() as folder:
        for policy, arms, rounds in jobs:
            row = asdict(measure(policy, arms, rounds, asked.engine, Path(folder)))
            if not head:
                print("| " + " | ".join(row) + " |")
                print("|" + "---|" * len(row))
                head = True
            cells = [
                f"{v:,.2f}" if isinstance(v, float) else str(v) for v in row.values()
            ]
            print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
