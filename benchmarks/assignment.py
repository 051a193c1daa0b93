"""Whole runs over unequal nodes: are equal arms kept, is a better one found?

    python -m benchmarks.assignment [--seeds 20] [--engine fast]

Small and large nodes have different rates, and every person's outcome is the same on
all arms. No arm may then be dropped in more than the fraction p of the runs. With the
last arm 3 or 6 points better for everybody it should win, where there are people enough
to tell. Each run is a `wallflower run`.
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
POPULATIONS = {
    "30 x 237 at 0.5, 6 x 4,000 at 0.2": ((30, 237, 0.5), (6, 4000, 0.2)),
    "30 x 60 at 0.5, 6 x 2,000 at 0.2": ((30, 60, 0.5), (6, 2000, 0.2)),
    "30 x 237 at 0.2, 6 x 4,000 at 0.5": ((30, 237, 0.2), (6, 4000, 0.5)),
}
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


def write_experiment(
    folder: Path, nodes: tuple[tuple[int, int, float], ...], seed: int, lead: float
) -> Path:
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


def run_once(
    nodes: tuple[tuple[int, int, float], ...], seed: int, lead: float, engine: str
) -> dict[str, bool]:
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


def main() -> None:
    """Print, for every population, how often each arm was dropped or won."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--engine", default="fast")
    stated = parser.parse_args()
    for name, nodes in POPULATIONS.items():
        for lead in (0.0, 0.03, 0.06):
            dropped: Counter[str] = Counter()
            won: Counter[str] = Counter()
            for seed in range(stated.seeds):
                active = run_once(nodes, seed, lead, stated.engine)
                dropped.update(arm for arm in ARMS if not active[arm])
                left = [arm for arm in ARMS if active[arm]]
                won.update(left if len(left) == 1 else [])
            kind = f"last arm {100 * lead:g} points better" if lead else "equal arms"
            print(
                f"{name}; {kind}: of {stated.seeds} runs dropped {dict(dropped)}, "
                f"won {dict(won)}",
                flush=True,
            )


if __name__ == "__main__":
    main()
