"""``make check-regret``: regret against the oracle table, 200 instances a cell.

K = 10, T = 10⁶, easy, rewards of deviation 0.1, p = 0.1. The oracle's figures are means
over another draw of 200 instances, with a standard error of 1 to 5 % of their own, so
that another ``--seed`` moves all rows up or down together by as much.
Exit code 1 when a row that must be met is off by more than its tolerance.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from fractions import Fraction

from protocol.rewards import GaussianRewards
from strategy.policy_spec import PolicySpec
from wallflower.simulation import Simulation, run
from wallflower.simulation_setup import build_engine, drawn_means

EPSILONS = (Fraction(1, 10), Fraction(1, 2), Fraction(1))
LAST = {"ratio": Fraction(2), "first_batch": 2, "pooling": False}
# name: settings, oracle, allowed ratio from … to; None: shown only.
ROWS: dict[
    str, tuple[Mapping[str, object], tuple[int, ...], tuple[float, float] | None]
] = {
    "paper radius, 2^b": ({"radius": "paper"}, (15430, 7089, 5852), (0.95, 1.05)),
    "paper radius, 4^b": (
        {"radius": "paper", "ratio": Fraction(4)},
        (13910, 6393, 5224),
        (0.95, 1.05),
    ),
    "paper, dist-rdp, s = 10": (
        {"radius": "paper", "mechanism": "dist-rdp"},
        (10692, 5961, 5296),
        (0.95, 1.05),
    ),
    "DP-SE": ({"mechanism": "dp-se"}, (7628, 4623, 4285), (0.95, 1.05)),
    "tight, last batch, 2^b": (LAST, (4631, 2300, 2137), (0.95, 1.05)),
    "tight, pooled, 1.5^b": ({}, (2861, 1333, 1197), (0.95, 1.05)),
    "dp-klucb": ({"policy": "dp-klucb"}, (1997, 753, 678), (0.0, 1.15)),
    "dp-imed": ({"policy": "dp-imed"}, (1441, 601, 396), (0.0, 1.15)),
}


def main() -> int:
    """Print the table; give the number of rows that miss."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--instances", type=int, default=200)
    parser.add_argument("--seed", type=int, default=42)
    arguments = parser.parse_args()
    count, seed = arguments.instances, arguments.seed
    means = drawn_means("easy", count, 10, seed).ravel()
    model = GaussianRewards(means, 0.1)
    print(f"{count} instances, seed {seed}; regret ± s.e. (ratio to oracle)")
    print(f"{'':26}" + "".join(f"{f'ε = {float(e):g}':>24}" for e in EPSILONS))
    misses = 0
    for name, (changes, oracle, allowed) in ROWS.items():
        cells = []
        for epsilon, expected in zip(EPSILONS, oracle, strict=True):
            settings: dict[str, object] = {
                "policy": "elimination",
                "mechanism": "dist-dp",
                **changes,
            }
            spec = PolicySpec(
                arms=10,
                horizon=10**6,
                epsilon=epsilon,
                failure_probability=Fraction(1, 10),
                **settings,  # type: ignore[arg-type]
            )
            result = run(build_engine(Simulation(spec, model, count, seed)))
            mean = result.regret.mean()
            error = result.regret.std(ddof=1) / count**0.5
            ratio = mean / expected
            missed = allowed is not None and not allowed[0] <= ratio <= allowed[1]
            misses += missed
            mark = "!" if missed else " "
            cells.append(f"{mean:10,.0f} ± {error:4.0f} ({ratio:.3f}){mark}")
        print(f"{name:26}" + "".join(f"{cell:>24}" for cell in cells), flush=True)
    print(f"{misses} cells out of bounds" if misses else "all within bounds")
    return min(misses, 1)


if __name__ == "__main__":
    sys.exit(main())
