"""``make check-differences``: coverage of differences, false "equal", false "futile".

Every row plays 2,000 runs (seed 26) at p = 0.1. Coverage: after every round, and for
every pair of arms in it, the true pair of means is looked up in the region that the
joint test leaves; a run counts when any pair was ever missed. In the first runs of each
row the intervals of difference and ratio are computed as a page shows them, and looked
at too. Endings: the best arm leads by exactly the margin, so that "equal" and "futile"
are wrong; a run counts that ends so.

The upper end of the exact one-sided 99.9 % interval (Clopper and Pearson) must lie
below p; exit code 1 when one does not. A check that could not fail would be worth
nothing: the last rows give differences the wrong sign, or half the margin to arms that
differ by a whole one; there the lower end must lie above p.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from deploy.harness.tables import write_csv
from wallflower.protocol.rewards.models import BernoulliRewards
from wallflower.regret.elimination import FastElimination
from wallflower.regret.simulation import Simulation
from wallflower.strategy.bandit.cells import unit_cells
from wallflower.strategy.bandit.differences import Ends, find_region
from wallflower.strategy.bandit.policy import Ending
from wallflower.strategy.bandit.schedule import CohortFacts
from wallflower.strategy.bandit.sequential_test import evidence_for
from wallflower.strategy.bandit.spec import PolicySpec

P = Fraction(1, 10)
SEED = 26
USERS_PER_ARM = 6_000
SHOWN = 4  # runs of each row whose intervals are computed as a page shows them
COLUMNS = ("what", "means", "mechanism", "epsilon", "wrong", "of", "99.9 % below")


@dataclass(frozen=True, slots=True)
class Row:
    """One setting; `sign` −1 or `stretch` 2 break it on purpose."""

    what: str  # coverage, equal or futile
    means: tuple[float, ...]
    mechanism: str = "dist-dp"
    epsilon: Fraction = Fraction(1)
    margin: float = 0.0
    sign: int = 1
    stretch: int = 1

    @property
    def is_broken(self) -> bool:
        """Whether it has to go wrong."""
        return (self.sign, self.stretch) != (1, 1)

    @property
    def name(self) -> str:
        """Its settings in words."""
        means = " ".join(f"{mean:g}" for mean in self.means)
        broken = ", broken on purpose" if self.is_broken else ""
        return (
            f"{self.what}: {means}; {self.mechanism}, ε = {float(self.epsilon):g}"
            f"{broken}"
        )

    def spec(self) -> PolicySpec:
        """Return the policy of the row."""
        margin = Fraction(str(self.margin)) * self.stretch
        return PolicySpec(
            policy="elimination",
            arms=len(self.means),
            horizon=USERS_PER_ARM * len(self.means),
            mechanism=self.mechanism,
            epsilon=self.epsilon,
            failure_probability=P,
            margin=margin or None,
            control=0 if self.what == Ending.FUTILE else None,
            keep_control=self.what == Ending.FUTILE,
        ).resolved()


def rows() -> Iterator[Row]:
    """Yield all settings, those that are broken on purpose last."""
    fields = (
        (0.5, 0.5),
        (0.5, 0.4),
        (0.9, 0.5),
        (0.02, 0.02, 0.02),
        (0.05, 0.04, 0.01),
        (0.99, 0.98, 0.9),
    )
    for means, epsilon in itertools.product(fields, (Fraction(1, 10), Fraction(10))):
        yield Row("coverage", means, epsilon=epsilon)
    yield Row("coverage", (0.3, 0.3, 0.25, 0.1), "dist-rdp")
    yield Row("coverage", (0.3, 0.0), "non-private")
    for ending in (Ending.EQUAL, Ending.FUTILE):
        for means, margin in (
            ((0.5, 0.6), 0.1),
            ((0.05, 0.1), 0.05),
            ((0.3, 0.3, 0.4), 0.1),
            ((0.9, 0.9, 0.95), 0.05),
        ):
            yield Row(ending, means, margin=margin)
        yield Row(ending, (0.5, 0.6), epsilon=Fraction(10), margin=0.1)
    yield Row("coverage", (0.9, 0.5), "non-private", sign=-1)
    yield Row(Ending.EQUAL, (0.5, 0.6), margin=0.1, stretch=2)
    yield Row(Ending.FUTILE, (0.5, 0.6), margin=0.1, stretch=2)


def count_wrong(row: Row, runs: int) -> int:
    """Play a row and count the runs that go wrong."""
    spec = row.spec()
    model = BernoulliRewards(np.tile(row.means, runs))
    engine = FastElimination(Simulation(spec, model, runs, SEED))
    missed = np.zeros(runs, dtype=np.bool_)
    batch = 0
    for _ in engine.steps():
        if row.what == "coverage" and engine.played > batch:
            batch = engine.played
            missed |= find_missed(row, spec, engine, batch)
    if row.what == "coverage":
        return int(missed.sum())
    ends = (Ending.EQUAL, Ending.FUTILE)
    return sum(why in ends for why in engine.accounts.finished)


def find_missed(
    row: Row, spec: PolicySpec, engine: FastElimination, batch: int
) -> NDArray[np.bool_]:
    """Return the runs in which a pair's true means are missed after a round."""
    test, missed = evidence_for(spec), np.zeros(len(engine.heard), dtype=np.bool_)
    sums = engine.sums(batch)
    for size in np.unique(engine.last_size[engine.heard == batch]).tolist():
        here = (engine.heard == batch) & (engine.last_size == size)
        heard = test.planned_until(batch, CohortFacts(size, spec.floor(size), size))
        side = test.delivered(heard, batch)
        for one, other in itertools.permutations(range(spec.arms), 2):
            places = np.flatnonzero(here[:, one] & here[:, other])
            if not len(places):
                continue
            apart = row.sign * (row.means[one] - row.means[other])
            middle = (row.means[one] + row.means[other]) / 2
            cell = unit_cells().containing(np.array([middle]))
            design = test.design(batch, test.mixed(batch), cell).shifted(apart)
            pair = sums[places, one], sums[places, other]
            found = design.everywhere(side, side, *pair)[:, 0]
            missed[places] |= found > test.difference_threshold
            for run in places[places < SHOWN].tolist() if one < other else ():
                lines = sums[run, one][None], sums[run, other][None]
                region = find_region(test, batch, (heard, heard), lines, lines)
                missed[run] |= not _holds(region.difference(), apart)
                if row.means[other] and row.sign > 0:
                    ratio = row.means[one] / row.means[other]
                    missed[run] |= not _holds(region.ratio(), ratio)
    return missed


def _holds(ends: Ends, value: float) -> bool:
    above = ends.lower is None or ends.lower <= value + 1e-12
    return above and (ends.upper is None or value <= ends.upper + 1e-12)


def interval(wrong: int, runs: int) -> tuple[float, float]:
    """Return the exact interval, each end of which holds with 99.9 %."""
    found = stats.binomtest(wrong, runs).proportion_ci(0.998, "exact")
    return float(found.low), float(found.high)


def verdict(found: Sequence[tuple[Row, int]], runs: int) -> list[str]:
    """Say what is wrong: a level exceeded, or a check that does not notice."""
    wrong = []
    for row, count in found:
        low, high = interval(count, runs)
        if row.is_broken and low <= float(P):
            wrong.append(f"{row.name}: {count} of {runs} went unnoticed")
        if not row.is_broken and high > float(P):
            wrong.append(f"{row.name}: {count} of {runs} exceed p")
    return wrong


def table(found: Sequence[tuple[Row, int]], runs: int) -> list[tuple[str, ...]]:
    """Return a line for every row that is not broken on purpose."""
    return [
        COLUMNS,
        *(
            (
                row.what,
                " ".join(f"{mean:g}" for mean in row.means),
                row.mechanism,
                f"{float(row.epsilon):g}",
                str(count),
                str(runs),
                f"{100 * interval(count, runs)[1]:.2f} %",
            )
            for row, count in found
            if not row.is_broken
        ),
    ]


def main() -> int:
    """Play the rows; exit code 1 when something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--only", default="", help="rows whose name has this")
    parser.add_argument("--write", type=Path, help="write the table here, as CSV")
    arguments = parser.parse_args()
    found = []
    for row in rows():
        if arguments.only in row.name:
            found.append((row, count_wrong(row, arguments.runs)))
            print(f"{row.name}: {found[-1][1]} of {arguments.runs}", flush=True)
    wrong = verdict(found, arguments.runs)
    print(f"{len(found)} rows", *(wrong or ["nothing is wrong"]), sep="\n")
    if arguments.write:
        note = f"make check-differences: p = {float(P):g}, seed {SEED}"
        write_csv(arguments.write, note, table(found, arguments.runs))
    return min(len(wrong), 1)


if __name__ == "__main__":
    sys.exit(main())
