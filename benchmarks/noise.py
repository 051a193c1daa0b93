"""Exact noise against float noise and against another exact sampler, in one run.

All samplers of a row draw from the same law. Rounds are interleaved, the fastest round
of each sampler counts, and processor time is measured (the operating system's share for
its random bits included), so that a busy machine disturbs all alike.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from benchmarks.report import Row, keep, show
from wallflower.protocol.noise.bits import OsBits, SeededBits
from wallflower.protocol.noise.difference import NegativeBinomialDifference
from wallflower.protocol.noise.gaussian import DiscreteGaussian, Skellam
from wallflower.protocol.noise.laplace import DiscreteLaplace
from wallflower.protocol.noise.law import NoiseLaw
from wallflower.protocol.noise.table import CertifiedTable

ROUNDS = 7
DRAWS = 400_000
SLOW_DRAWS = 400  # a peer that takes tens of microseconds a draw
Draw = Callable[[int], object]


@dataclass(frozen=True, slots=True)
class Contest:
    """One law and whoever can draw from it."""

    name: str
    law: NoiseLaw
    floats: Draw | None = None
    opendp: Draw | None = None


def gamma_poisson_difference(shape: float, rate: float) -> Draw:
    """Difference of two Pólya draws in doubles."""
    generator = np.random.default_rng()
    scale = 1 / math.expm1(rate)

    def draw(count: int) -> object:
        return generator.poisson(generator.gamma(shape, scale, count)) - (
            generator.poisson(generator.gamma(shape, scale, count))
        )

    return draw


def poisson_difference(variance: float) -> Draw:
    """Skellam in doubles."""
    generator = np.random.default_rng()
    return lambda count: (
        generator.poisson(variance / 2, count) - generator.poisson(variance / 2, count)
    )


def opendp_draw(kind: str, scale: float) -> Draw:
    """OpenDP's exact discrete Laplace or Gaussian of a scale, as a vector."""
    import opendp.prelude as dp

    dp.enable_features("contrib")
    domain = dp.vector_domain(dp.atom_domain(T=int))
    if kind == "laplace":
        measure = dp.m.make_laplace(domain, dp.l1_distance(T=int), scale=scale)
    else:
        measure = dp.m.make_gaussian(domain, dp.l2_distance(T=int), scale=scale)
    return lambda count: measure([0] * count)


def contests() -> list[Contest]:
    """Shares of one user in a thousand, and totals at several g/ε."""
    share, rate = Fraction(1, 1000), Fraction(1, 32)
    found = [
        Contest(
            "user's share 1/1000, g/ε = 32",
            NegativeBinomialDifference(share, rate),
            gamma_poisson_difference(1 / 1000, 1 / 32),
        ),
        Contest("Skellam, σ² = 100", Skellam(Fraction(100)), poisson_difference(100)),
        Contest(
            "discrete Gaussian, σ² = 100",
            DiscreteGaussian(Fraction(100)),
            None,
            opendp_draw("gaussian", 10.0),
        ),
    ]
    totals = [
        Contest(
            f"discrete Laplace, g/ε = {scale}",
            DiscreteLaplace(Fraction(scale)),
            gamma_poisson_difference(1.0, 1 / scale),
            opendp_draw("laplace", float(scale)),
        )
        for scale in (32, 1000, 10_000)
    ]
    return [*found, *totals]


def nanoseconds(draw: Draw, count: int) -> float:
    """Time one round, per draw, in processor time (the system's share included)."""
    start = time.process_time()
    draw(count)
    return (time.process_time() - start) / count * 1e9


def contest_row(contest: Contest) -> Row:
    """Interleave the rounds of all samplers of a law; keep the fastest of each."""
    system, fast = OsBits(), SeededBits(1)
    law = contest.law
    samplers: dict[str, tuple[Draw, int]] = {
        "ours, OS bits": (lambda count: law.sample(count, system), DRAWS),
        "ours, PCG64": (lambda count: law.sample(count, fast), DRAWS),
    }
    if contest.floats is not None:
        samplers["NumPy float"] = (contest.floats, DRAWS)
    if contest.opendp is not None:
        samplers["OpenDP exact"] = (contest.opendp, SLOW_DRAWS)
    best = dict.fromkeys(samplers, math.inf)
    law.sample(1, fast)  # builds the table, which is measured below
    for _ in range(ROUNDS):
        for name, (draw, count) in samplers.items():
            best[name] = min(best[name], nanoseconds(draw, count))
    ours = best["ours, OS bits"]
    floats, exact = best.get("NumPy float"), best.get("OpenDP exact")
    return {
        "law (ns a draw)": contest.name,
        "ours, OS bits": ours,
        "ours, PCG64": best["ours, PCG64"],
        "NumPy float": floats,
        "OpenDP exact": exact,
        "× NumPy": None if floats is None else floats / ours,
        "× OpenDP": None if exact is None else exact / ours,
    }


def build_rows() -> list[Row]:
    """Time the building of tables, best of three, in processor seconds."""
    rows: list[Row] = []
    for scale in (100, 1000, 10_000):
        rate, square = Fraction(1, scale), Fraction(scale) ** 2
        laws: dict[str, NoiseLaw] = {
            "discrete Laplace": DiscreteLaplace(Fraction(scale)),
            "NB-difference, shape 1/1000": NegativeBinomialDifference(
                Fraction(1, 1000), rate
            ),
            "NB-difference, shape 10/9": NegativeBinomialDifference(
                Fraction(10, 9), rate
            ),
            "Skellam": Skellam(square),
            "discrete Gaussian": DiscreteGaussian(square),
        }
        for name, law in laws.items():
            seconds, length = built(law)
            rows.append(
                {
                    "table": name,
                    "g/ε": scale,
                    "entries": length,
                    "processor seconds": seconds,
                }
            )
    return rows


def built(law: NoiseLaw) -> tuple[float, int]:
    """Build a table three times; give the fastest time and its length."""
    best, length = math.inf, 0
    for _ in range(3):
        start = time.process_time()
        length = len(CertifiedTable(law, 63))
        best = min(best, time.process_time() - start)
    return best, length


def main() -> None:
    """Print both tables and keep their rows."""
    draws = [contest_row(contest) for contest in contests()]
    show("Draws: nanoseconds each, and how many times faster we are", draws)
    builds = build_rows()
    show("Tables: built once per law and remembered", builds)
    keep("noise", {"draws": draws, "builds": builds})


if __name__ == "__main__":
    main()
