"""``make bench-schedules``: users and rounds by first batch and ratio.

The schedule's constants and the test's were chosen here, on instances that are not
those of ``make bench-decide``: Bernoulli rewards, p = 0.01, T = 10⁸, `dist-dp`, 200
instances a row (seed 77). A line gives the geometric mean of the rows' users, and the
mean of their rounds. `today` is the default, `few rounds` the default where rounds take
time.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from benchmarks.decide import HORIZON, Means, P, simulate
from wallflower.protocol.rewards.models import BernoulliRewards
from wallflower.regret.setup import build_engine
from wallflower.regret.simulation import Simulation
from wallflower.strategy.bandit.spec import PolicySpec

SEED = 77
ROWS: tuple[Means, ...] = (
    (0.6, 0.5, 0.45),
    (0.3, 0.25, 0.2, 0.1),
    (0.02, 0.015, 0.015),
    (0.005, 0.0035, 0.003),
    (0.98, 0.96, 0.9),
    (0.5, 0.45, 0.45, 0.4),
    (0.8, 0.65, 0.5, 0.5, 0.3),
    (0.9, 0.82, 0.8, 0.8),
    (0.1, 0.08, 0.06, 0.05),
    (0.55, 0.5),
)
# Sizes to begin with and ratios that are tried, by ε.
TRIED: dict[Fraction, tuple[Sequence[int], Sequence[Fraction]]] = {
    Fraction(1, 10): ((106, 400, 800, 1600), (Fraction(5, 4), Fraction(3, 2))),
    Fraction(3, 10): ((37, 200, 350), (Fraction(6, 5), Fraction(3, 2))),
    Fraction(1): ((13, 50, 100, 200), (Fraction(11, 10), Fraction(6, 5))),
    Fraction(3): ((8, 60, 100), (Fraction(11, 10), Fraction(6, 5))),
}
OLD, DOUBLING = Fraction(3, 2), Fraction(2)


def tried(epsilon: Fraction) -> list[dict[str, object]]:
    """Return the schedules of one ε, as changes of a spec."""
    sizes, ratios = TRIED[epsilon]
    grid: list[dict[str, object]] = [{}, {"few_rounds": True}]
    grid += [
        {"first_batch": size, "ratio": ratio}
        for size in sizes
        for ratio in sorted({*ratios, OLD, DOUBLING})
    ]
    return grid


def play(
    epsilon: Fraction, instances: int, changes: dict[str, object]
) -> tuple[float, float]:
    """Return users and rounds of a schedule over all rows."""
    users, rounds = [], []
    for means in ROWS:
        spec = PolicySpec(
            policy="elimination",
            arms=len(means),
            horizon=HORIZON,
            mechanism="dist-dp",
            epsilon=epsilon,
            failure_probability=P,
            **changes,  # type: ignore[arg-type]
        )
        model = BernoulliRewards(np.tile(means, instances))
        found = simulate(build_engine, Simulation(spec, model, instances, SEED))
        users.append(found.mean)
        rounds.append(found.rounds or 0.0)
    return float(np.exp(np.mean(np.log(users)))), float(np.mean(rounds))


def main() -> None:
    """Print a line for every ε and schedule."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--instances", type=int, default=200)
    instances = parser.parse_args().instances
    print("| ε | first batch | ratio | users | rounds |")
    print("|---|---|---|---|---|")
    for epsilon in TRIED:
        for changes in tried(epsilon):
            users, rounds = play(epsilon, instances, changes)
            first = changes.get("first_batch", "few rounds" if changes else "today")
            ratio = changes.get("ratio", "")
            print(
                f"| {float(epsilon):g} | {first} | {ratio} | {users:,.0f} | "
                f"{rounds:.1f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
