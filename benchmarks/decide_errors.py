"""``make check-decide``: how often the best arm is dropped, against p = 0.02.

2,000 runs a row (seed 9); the upper end of the exact 99.9 % interval (Clopper and
Pearson) must lie below p. Exit code 1 when one does not. The last row tests every batch
at 16 p, without any sharing, and must be above p: a check that could not fail would be
worth nothing.
"""

from __future__ import annotations

import argparse
import sys
from fractions import Fraction
from unittest import mock

import numpy as np
from scipy import stats

from wallflower.protocol.rewards.models import BernoulliRewards
from wallflower.regret.elimination import FastElimination
from wallflower.regret.simulation import Simulation, run
from wallflower.strategy.bandit.evidence import evidence_for
from wallflower.strategy.bandit.failure_budget import Shares
from wallflower.strategy.bandit.spec import PolicySpec

P = Fraction(1, 50)
MECHANISMS = ("dist-rdp", "dist-cdp", "central-dp", "local-dp", "non-private")
# Arms, mean of all but the best, its lead.
FIELDS = [
    (arms, base, lead)
    for arms in (2, 4, 16)
    for base, lead in ((0.01, 1e-3), (0.5, 1e-3), (0.99, 1e-3), (0.5, 0.0))
]


def dropped(
    arms: int, base: float, lead: float, mechanism: str, epsilon: Fraction, runs: int
) -> int:
    """Runs in which the best arm, or one of the best, was dropped (arm 0)."""
    spec = PolicySpec(
        policy="elimination",
        arms=arms,
        horizon=20_000 * arms,
        mechanism=mechanism,
        epsilon=epsilon,
        failure_probability=P,
        honest_fraction=Fraction(4, 5),
    )
    means = np.full((runs, arms), base)
    means[:, 0] += lead
    model = BernoulliRewards(means.ravel())
    result = run(FastElimination(Simulation(spec, model, runs, seed=9)))
    return int((result.eliminated_in[:, 0] > 0).sum())


def main() -> int:
    """Print a row for every field of arms."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=2000)
    runs = parser.parse_args().runs
    rows = [
        (*field, "dist-dp", epsilon)
        for field in FIELDS
        for epsilon in (Fraction(1, 10), Fraction(1), Fraction(10))
    ]
    rows += [(4, 0.5, 1e-3, mechanism, Fraction(1)) for mechanism in MECHANISMS]
    failures = 0
    for row in rows:
        count = dropped(*row, runs)
        interval = stats.binomtest(count, runs).proportion_ci(0.998, "exact")
        failures += int(interval.high > float(P))
        settings = f"K = {row[0]}, mean {row[1]:g} + {row[2]:g}, {row[3]}"
        print(f"{settings}, ε = {float(row[4]):g}: {count} of {runs}", flush=True)
    evidence_for.cache_clear()
    with mock.patch.object(Shares, "pair", return_value=16 * P):
        count = dropped(4, 0.5, 1e-3, "dist-dp", Fraction(1), runs)
    low = stats.binomtest(count, runs).proportion_ci(0.998, "exact").low
    print(f"at 16 p in every batch: {count} of {runs}")
    failures += int(low <= float(P))
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
