"""``make check-regret``: regret against the oracle table.

K = 10, T = 10⁶, easy, rewards of deviation 0.1, p = 0.1. The oracle's figures are means
of an independent computation over 2,000 instances, of the pair radius
(`benchmarks.pair_radius`) and of the plain rule of `dp-imed`. Ten times as many of ours
leave only the oracle's own chance, whose standard error follows from our spread. Exit
code 1 when a cell is off by more than 4 %, or by more than three standard errors where
these are wider.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import partial

from benchmarks.dp_se import FastDpSe
from benchmarks.index import plain_imed, plain_schedule
from benchmarks.pair_radius import PairElimination, steep
from wallflower.protocol.rewards.models import GaussianRewards
from wallflower.regret.setup import build_engine, draw_means
from wallflower.regret.simulation import Engine, Simulation, run
from wallflower.strategy.bandit.spec import PolicySpec

EPSILONS = (Fraction(1, 10), Fraction(1, 2), Fraction(1))
TOLERANCE = 0.04
ORACLE_INSTANCES = 2000
LAST = {"ratio": Fraction(2), "first_batch": 2}
Last = partial(PairElimination, pooling=False)
Build = Callable[[Simulation], Engine]
# name: engine, settings, oracle for each ε.
ROWS: dict[str, tuple[Build, Mapping[str, object], tuple[int, ...]]] = {
    "paper radius, 2^b": (build_engine, {"radius": "paper"}, (15423, 7197, 6024)),
    "paper, dist-rdp, s = 10": (
        build_engine,
        {"radius": "paper", "mechanism": "dist-rdp"},
        (10807, 6109, 5479),
    ),
    "DP-SE": (FastDpSe, {}, (7704, 4827, 4502)),
    "pair radius, last batch, 2^b": (Last, LAST, (4985, 2623, 2317)),
    "pair radius, pooled, 1.5^b": (PairElimination, {}, (2978, 1454, 1311)),
    "dp-imed, plain": (build_engine, {"policy": "dp-imed"}, (1419, 466, 414)),
}


def main() -> int:
    """Print the table; return 1 when a cell is out of bounds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--instances", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=20261116)
    arguments = parser.parse_args()
    count, seed = arguments.instances, arguments.seed
    means = draw_means("easy", count, 10, seed).ravel()
    model = GaussianRewards(means, 0.1)
    print(f"{count} instances, seed {seed}; regret ± s.e. (ratio to oracle)")
    print(f"{'':30}" + "".join(f"{f'ε = {float(e):g}':>24}" for e in EPSILONS))
    misses = 0
    for name, (build, changes, oracle) in ROWS.items():
        cells = []
        for epsilon, expected in zip(EPSILONS, oracle, strict=True):
            settings: dict[str, object] = {
                "policy": "elimination",
                "mechanism": "dist-dp",
                **changes,
            }
            if settings["policy"] == "dp-imed":
                settings |= plain_schedule(epsilon)
            spec = PolicySpec(
                arms=10,
                horizon=10**6,
                epsilon=epsilon,
                failure_probability=Fraction(1, 10),
                **settings,  # type: ignore[arg-type]
            )
            if build is PairElimination:
                spec = steep(spec)
            with plain_imed():
                result = run(build(Simulation(spec, model, count, seed)))
            mean = result.regret.mean()
            spread = result.regret.std(ddof=1)
            error = spread / count**0.5
            ratio = mean / expected
            joint = spread * (1 / count + 1 / ORACLE_INSTANCES) ** 0.5
            missed = bool(abs(mean - expected) > max(TOLERANCE * expected, 3 * joint))
            misses += missed
            mark = "!" if missed else " "
            cells.append(f"{mean:10,.0f} ± {error:4.0f} ({ratio:.3f}){mark}")
        print(f"{name:30}" + "".join(f"{cell:>24}" for cell in cells), flush=True)
    print(f"{misses} cells out of bounds" if misses else "all within bounds")
    return min(misses, 1)


if __name__ == "__main__":
    sys.exit(main())
