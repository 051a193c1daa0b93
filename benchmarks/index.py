"""``make bench-index``: mean, 99th percentile and largest regret of dp-imed.

Four instances of five coins, T = 10⁶, `dist-dp`, 2,000 runs each (seed 3): the plain
rule of `dp-imed`, which locks onto a wrong arm in one run of 500, and today's. Exit
code 1 when the largest run of today's rule exceeds ten means, or its mean 1.1 times the
plain rule's.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from fractions import Fraction
from unittest import mock

import numpy as np

from wallflower.protocol.rewards.models import BernoulliRewards
from wallflower.regret.setup import build_engine
from wallflower.regret.simulation import Doubles, Simulation, run
from wallflower.strategy.bandit.index_choice import Arms, ArmTotals, Divergence
from wallflower.strategy.bandit.spec import PolicySpec

INSTANCES = (
    (0.75, 0.7, 0.7, 0.7, 0.7),
    (0.75, 0.625, 0.5, 0.375, 0.25),
    (0.75, 0.53125, 0.375, 0.28125, 0.25),
    (0.75, 0.71875, 0.625, 0.46875, 0.25),
)
EPSILONS = (Fraction(1, 10), Fraction(1, 2), Fraction(1))


def choose_plainly(totals: ArmTotals, divergence: Divergence, horizon: int) -> Arms:
    """Return the arm of smallest n·d(mean, best mean) + ln n (Honda, Takemura 2015)."""
    means = np.clip(totals.means, 0, 1)
    best = means.max(axis=-1, keepdims=True)
    distance = divergence.between(means, best, divergence.epsilon)
    users = totals.users
    return np.asarray(np.argmin(users * distance + np.log(users), axis=-1))


def plain_schedule(epsilon: Fraction) -> dict[str, object]:
    """Return the cohorts of the plain rule: 4/ε users first, doubling."""
    return {"ratio": Fraction(2), "first_batch": math.ceil(4 / epsilon)}


@contextmanager
def plain_imed() -> Iterator[None]:
    """Play `dp-imed` by the plain rule for a while."""
    with mock.patch("wallflower.regret.index.choose_arm", choose_plainly):
        yield


def regret(
    means: tuple[float, ...], epsilon: Fraction, runs: int, plain: bool
) -> Doubles:
    """Return the pseudo-regret of every run."""
    schedule = plain_schedule(epsilon) if plain else {}
    spec = PolicySpec(
        policy="dp-imed",
        arms=len(means),
        horizon=10**6,
        mechanism="dist-dp",
        epsilon=epsilon,
        **schedule,  # type: ignore[arg-type]
    )
    model = BernoulliRewards(np.tile(means, runs))
    with plain_imed() if plain else nullcontext():
        return run(build_engine(Simulation(spec, model, runs, seed=3))).regret


def main() -> int:
    """Print the table; exit code 1 when a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=2000)
    runs = parser.parse_args().runs
    print("mean / 99th percentile / largest")
    print("| means | ε | dp-imed, plain | dp-imed |\n|---|---|---|---|")
    missed = 0
    for means in INSTANCES:
        for epsilon in EPSILONS:
            rows = [regret(means, epsilon, runs, plain) for plain in (True, False)]
            before, after = rows[0].mean(), rows[1].mean()
            miss = rows[1].max() > 10 * after or after > 1.1 * before
            missed += int(miss)
            cells = [
                f"{row.mean():,.0f} / {np.quantile(row, 0.99):,.0f} / {row.max():,.0f}"
                for row in rows
            ]
            cells[1] += f" ({after / before:.2f}){'!' if miss else ''}"
            names = [" ".join(f"{mean:g}" for mean in means), f"{float(epsilon):g}"]
            print("| " + " | ".join([*names, *cells]) + " |", flush=True)
    print(f"{missed} cells miss" if missed else "no cell misses")
    return min(missed, 1)


if __name__ == "__main__":
    sys.exit(main())
