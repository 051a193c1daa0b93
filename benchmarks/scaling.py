"""How many people the same question takes, by the range outcomes are clipped to.

    python -m benchmarks.scaling [--runs 200]
    python -m benchmarks.scaling --write examples/revenue.csv

A seeded table of revenue: 8,000 people, most pay nothing, a few pay very much. Arm
"annual" brings more money than arm "monthly". The table is simulated with
several values of `rewards.range`: each is another question with another price.
The second command writes the table of examples/revenue.toml, also seeded.
"""

from __future__ import annotations

import argparse
import csv
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np

from wallflower.protocol.rewards.models import Doubles, ReplayRewards
from wallflower.protocol.rewards.reward_range import RewardRange
from wallflower.regret.elimination import FastElimination
from wallflower.regret.simulation import Simulation
from wallflower.strategy.bandit.spec import PolicySpec
from wallflower.strategy.policy_names import ELIMINATION

ARMS = ("monthly", "annual")
PEOPLE = 8_000
EXAMPLE_ARMS = ("tips", "season ticket")
EXAMPLE_PEOPLE = 4_000
EXAMPLE_HIGH = 200
HIGH_ENDS = (2_000, 200, 50, 20)
_TABLE_SEED, _RUN_SEED = 21, 4
# Part of the people who pay, and median and spread of what they pay in euros.
_PAYING = {
    "monthly": (0.30, 9.0, 0.4),
    "annual": (0.12, 60.0, 0.9),
    "tips": (0.30, 0.7, 0.2),
    "season ticket": (0.12, 60.0, 0.9),
}


@dataclass(frozen=True, slots=True)
class LogPenalty:
    """What one range costs: means in euros, people clipped, people until decided."""

    high: int
    means: tuple[float, ...]
    clipped: int
    people: float
    right: int
    undecided: int


def draw_revenue(
    arms: tuple[str, ...] = ARMS, people: int = PEOPLE
) -> tuple[Doubles, ...]:
    """Draw what every person pays on every arm; the same table every time."""
    random = np.random.default_rng(_TABLE_SEED)
    columns = []
    for part, median, spread in (_PAYING[arm] for arm in arms):
        pays = random.random(people) < part
        amount = np.round(median * random.lognormal(0.0, spread, people), 2)
        columns.append(np.where(pays, amount, 0.0))
    return tuple(columns)


def write_example(path: Path) -> None:
    """Write the example's table, its outcomes clipped as its range says."""
    revenue = draw_revenue(EXAMPLE_ARMS, EXAMPLE_PEOPLE)
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["user", *EXAMPLE_ARMS])
        for person, paid in enumerate(zip(*revenue, strict=True)):
            cells = [f"{min(amount, EXAMPLE_HIGH):g}" for amount in paid]
            table.writerow([f"r{person}", *cells])


def price_of(revenue: tuple[Doubles, ...], high: int, runs: int) -> LogPenalty:
    """Simulate the question with outcomes clipped to the range from 0 to `high`."""
    measured = RewardRange(Fraction(0), Fraction(high), "€")
    fractions = [measured.to_fractions(column) for column in revenue]
    spec = PolicySpec(
        policy=ELIMINATION,
        arms=len(ARMS),
        horizon=10**7,
        mechanism="dist-dp",
        epsilon=Fraction(1),
        scale=Fraction(10),
        failure_probability=Fraction(1, 20),
        honest_fraction=Fraction(4, 5),
    )
    model = ReplayRewards(fractions, runs)
    engine = FastElimination(Simulation(spec, model, runs, _RUN_SEED))
    for _ in engine.steps():
        pass
    result = engine.result()
    best = int(np.argmax([column.mean() for column in fractions]))
    decided = result.decided
    return LogPenalty(
        high,
        tuple(measured.mean(float(column.mean())) for column in fractions),
        int(sum((column > high).sum() for column in revenue)),
        float(result.asked[decided].mean()),
        int((decided & (result.eliminated_in[:, best] == 0)).sum()),
        int((~decided).sum()),
    )


def main() -> None:
    """Print a line for every range."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--write", type=Path, help="write the example's table here")
    stated = parser.parse_args()
    if stated.write is not None:
        write_example(stated.write)
        return
    revenue = draw_revenue()
    for high in HIGH_ENDS:
        price = price_of(revenue, high, stated.runs)
        means = ", ".join(
            f"{arm} {mean:.2f} €" for arm, mean in zip(ARMS, price.means, strict=True)
        )
        print(
            f"range 0 to {high:,} €: {price.people:,.0f} people on average; means "
            f"{means}; {price.clipped} of {2 * PEOPLE:,} outcomes clipped; higher mean "
            f"found in {price.right} of {stated.runs} runs, {price.undecided} not "
            "decided",
            flush=True,
        )


if __name__ == "__main__":
    main()
