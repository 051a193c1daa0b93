"""``make bench-shop``: an experiment over people who arrive, beside its simulation.

The example shop tries four checkouts on people of whom 3 in 100 buy. Everybody takes a
seat, checks the terms, notes the spend, adds noise and encrypts; trustees open sums.
Printed are the winner, the people it took beside what `wallflower simulate` expects,
rounds, days, and what `verify` finds. The report is written into the run's folder.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wallflower.engines.run import start_run
from wallflower.regret.report import days_until_decided, users_until_decided
from wallflower.regret.setup import Request, prepare
from wallflower.results.page import content, fragment
from wallflower.results.result import RunResult, read_result
from wallflower.stated_experiment import read_experiment
from wallflower.strategy.run.verify import verify
from wallflower.strategy.store.journal import Journal

SHOP = Path("examples/checkout.toml")
MOST_APART = 0.1  # of the people that a simulation expects
_Figures = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Shop:
    """What became of one run, and how it compares."""

    result: RunResult
    problems: tuple[str, ...]
    seconds: float
    people: _Figures
    days: _Figures | None

    @property
    def apart(self) -> float:
        """How far the people are from the simulation's mean, as a part of it."""
        return self.result.invited / float(self.people["mean"]) - 1

    @property
    def is_good(self) -> bool:
        """Whether the best arm won, by as many people as expected, and it verifies."""
        best = self.result.winner == "wallet"
        return best and not self.problems and abs(self.apart) <= MOST_APART

    def describe(self) -> str:
        """Return the figures as lines."""
        result, people = self.result, self.people
        lines = [
            f"winner                {result.winner} (the best one is wallet)",
            f"people                {result.invited:,} asked, {result.answered:,} in a "
            f"sum, {result.void} void cohorts",
            f"simulated             {people['mean']:,.0f} on average, nine of ten runs "
            f"{people['low']:,.0f} to {people['high']:,.0f}: {self.apart:+.1%}",
            f"rounds                {result.rounds} (simulated {people['rounds']:.1f})",
            f"verify                {len(self.problems)} problems",
            f"on this machine       {self.seconds:.0f} s, all people included",
        ]
        if self.days is not None:
            lines.insert(4, f"days, simulated       {self.days['mean']:.1f}")
        return "\n".join(lines)


def simulate(instances: int) -> tuple[_Figures, _Figures | None]:
    """Return the people and the days that a simulation expects."""
    request = Request(experiment=read_experiment(SHOP, {}, {}), instances=instances)
    prepared = prepare(request)
    for _ in prepared.engine.steps():
        pass
    found = prepared.engine.result()
    return users_until_decided(found), days_until_decided(prepared, found)


def run_shop(run_dir: Path, instances: int = 100) -> Shop:
    """Run the shop into a folder, with its report, and compare."""
    people, days = simulate(instances)
    begun = time.perf_counter()
    start_run(SHOP, "local", run_dir)
    seconds = time.perf_counter() - begun
    with Journal.read(run_dir) as journal:
        result = read_result(journal)
        problems = tuple(p for check in verify(journal) for p in check.problems)
        page = fragment("report.html", content(journal))
    (run_dir / "report.html").write_text(page)
    return Shop(result, problems, seconds, people, days)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run-dir", type=Path, help="keeps run and report")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        shop = run_shop(given.run_dir or Path(folder) / "run")
    print(shop.describe())
    sys.exit(0 if shop.is_good else 1)
