"""Whole runs over unequal nodes: are equal arms kept, is a better one found?

    python -m benchmarks.assignment [--seeds 20] [--engine fast]
    python -m benchmarks.assignment --enough --seeds 10

Small and large nodes have different rates, and every person's outcome is the same on
all arms. No arm may then be dropped in more than the fraction p of the runs. With the
last arm 3 or 6 points better for everybody it should win, where there are people enough
to tell. Each run is a `wallflower run`.

With ``--enough`` the same populations have more people on every node, so many that
`wallflower plan` says a gap of 3 points fits. The last arm, 3 points better, should
then win in at least the fraction 1 − p of the runs.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np

ARMS = ("a", "b", "c", "d")
P = 0.05
# Nodes, users on each, rate of ones.
Nodes = tuple[tuple[int, int, float], ...]
POPULATIONS: tuple[Nodes, ...] = (
    ((30, 237, 0.5), (6, 4000, 0.2)),
    ((30, 60, 0.5), (6, 2000, 0.2)),
    ((30, 237, 0.2), (6, 4000, 0.5)),
)
LEADS = (0.0, 0.03, 0.06)
# How many times the people of each population. `wallflower plan --gap 0.03` says of all
# three that 141,812 people suffice whatever the rates are.
ENOUGH, ENOUGH_LEAD = (5, 11, 5), 0.03
_EXPERIMENT = """
[experiment]
name = "assignment"
arms = ["a", "b", "c", "d"]
failure-probability = {p}
[rewards]
source = "table"
table = "people.csv"
node-column = "node"
"""


def write_experiment(folder: Path, nodes: Nodes, seed: int, lead: float) -> Path:
    """Write an experiment with a table of everybody's outcomes; return its file."""
    random, number = np.random.default_rng(seed), 0
    with (folder / "people.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["user", "node", *ARMS])
        for count, users, rate in nodes:
            for _ in range(count):
                for user in range(users):
                    drawn = random.random()
                    same, last = int(drawn < rate), int(drawn < rate + lead)
                    name = f"node-{number}"
                    table.writerow([f"{name}-{user}", name, *[same] * 3, last])
                number += 1
    path = folder / "experiment.toml"
    path.write_text(_EXPERIMENT.format(p=P))
    return path


def run_once(nodes: Nodes, seed: int, lead: float, engine: str) -> dict[str, bool]:
    """Run one experiment and return which arms are still in the race."""
    with tempfile.TemporaryDirectory() as folder:
        path = write_experiment(Path(folder), nodes, seed, lead)
        command = [sys.executable, "-m", "wallflower", "run", str(path)]
        command += ["--engine", engine, "--format", "json"]
        command += ["--run-dir", str(Path(folder) / "run")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(done.stdout + done.stderr)
        found = json.loads(done.stdout)
    return {arm["name"]: arm["active"] for arm in found["arms"]}


def count_runs(nodes: Nodes, lead: float, seeds: int, engine: str) -> str:
    """Run a population with every seed; say how often each arm was dropped or won."""
    dropped: Counter[str] = Counter()
    won: Counter[str] = Counter()
    for seed in range(seeds):
        active = run_once(nodes, seed, lead, engine)
        dropped.update(arm for arm in ARMS if not active[arm])
        left = [arm for arm in ARMS if active[arm]]
        won.update(left if len(left) == 1 else [])
    name = ", ".join(f"{count} x {users:,} at {rate}" for count, users, rate in nodes)
    kind = f"last arm {100 * lead:g} points better" if lead else "equal arms"
    return f"{name}; {kind}: of {seeds} runs dropped {dict(dropped)}, won {dict(won)}"


def main() -> None:
    """Print, for every population, how often each arm was dropped or won."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--engine", default="fast")
    parser.add_argument("--enough", action="store_true")
    stated = parser.parse_args()
    for times, nodes in zip(ENOUGH, POPULATIONS, strict=True):
        if stated.enough:
            more = tuple((count, times * users, rate) for count, users, rate in nodes)
            settings = [(more, ENOUGH_LEAD)]
        else:
            settings = [(nodes, lead) for lead in LEADS]
        for asked, lead in settings:
            print(count_runs(asked, lead, stated.seeds, stated.engine), flush=True)


if __name__ == "__main__":
    main()
