"""``make check-decide``: how often the best arm is dropped, against p = 0.02.

Every row plays 2,000 runs (seed 9) of Bernoulli rewards: all arms but the best have one
mean, the best leads by little or not at all. The upper end of the exact one-sided
99.9 % interval (Clopper and Pearson) must lie below p; exit code 1 when one does not.
A check that could not fail would be worth nothing: the last rows play the sharpest
fields with p doubled four times over, and there the lower end must lie above p.

Rows are played in the order of their cost and printed when they are done. `--keep FILE`
remembers them, so that a check broken off goes on where it stopped; `--only TEXT` plays
the rows whose name has it; `--times 16` plays them at 16 p.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
from scipy import stats

from benchmarks.uneven_survivors import PATTERNS, UnevenElimination
from deploy.harness.tables import write_csv
from wallflower.protocol.privacy.mechanism import load_mechanisms, mechanism_class
from wallflower.protocol.rewards.models import BernoulliRewards
from wallflower.regret.elimination import FastElimination
from wallflower.regret.simulation import Simulation
from wallflower.strategy.bandit.spec import PolicySpec

P = Fraction(1, 50)
DOUBLED = 16  # four times over
SEED = 9
USERS_PER_ARM = 20_000
ARMS = (2, 4, 16)
EPSILONS = (Fraction(1, 10), Fraction(1), Fraction(10))
# Mean of all arms but the best, and its lead.
MEANS = (
    (0.001, 0.0),
    (0.01, 1e-3),
    (0.5, 0.0),
    (0.5, 1e-3),
    (0.99, 1e-3),
    (0.999, 0.0),
)
COLUMNS = (
    "mechanism",
    "level",
    "epsilon",
    "survivors",
    "arms",
    "rows",
    "dropped at most",
    "of",
    "99.9 % below",
)
_ALL = "all"


@dataclass(frozen=True, slots=True)
class Field:
    """One row: arms, means, mechanism and who answers."""

    arms: int
    base: float
    lead: float
    mechanism: str = "dist-dp"
    epsilon: Fraction = Fraction(1)
    survivors: str = _ALL
    ratio: Fraction | None = None

    @property
    def name(self) -> str:
        """The row's settings in words."""
        lead = f" + {self.lead:g}" if self.lead else ", all equal"
        growth = "" if self.ratio is None else f", ratio {self.ratio}"
        return (
            f"{self.mechanism}, ε = {float(self.epsilon):g}, K = {self.arms}, mean "
            f"{self.base:g}{lead}, survivors {self.survivors}{growth}"
        )


@dataclass(frozen=True, slots=True)
class Row:
    """How often the best arm fell."""

    field: Field
    times: int  # of the level
    dropped: int
    runs: int

    @property
    def low(self) -> float:
        """Lower end of the interval."""
        return self._interval()[0]

    @property
    def high(self) -> float:
        """Upper end of the interval."""
        return self._interval()[1]

    @property
    def name(self) -> str:
        """The field's, and the level where it is not p."""
        return self.field.name + (f", at {self.times} p" if self.times > 1 else "")

    def _interval(self) -> tuple[float, float]:
        # Two-sided 99.8 %: each end holds with 99.9 %.
        found = stats.binomtest(self.dropped, self.runs).proportion_ci(0.998, "exact")
        return float(found.low), float(found.high)


def fields() -> list[Field]:
    """Return all rows at level p."""
    mechanism_class("dist-dp")  # fills the registry
    others = [name for name in load_mechanisms() if name != "dist-dp"]
    rows = [
        Field(arms, base, lead, epsilon=epsilon)
        for arms, (base, lead), epsilon in itertools.product(ARMS, MEANS, EPSILONS)
    ]
    rows += [
        Field(arms, base, lead, mechanism, epsilon)
        for mechanism in others
        for arms, epsilon in zip(ARMS, EPSILONS, strict=True)
        for base, lead in ((0.01, 1e-3), (0.5, 0.0))
    ]
    rows += [
        Field(arms, base, lead, mechanism, epsilon, survivors)
        for mechanism, epsilon in (
            ("dist-dp", Fraction(1, 10)),
            ("dist-dp", Fraction(10)),
            ("dist-rdp", Fraction(1)),
            ("shuffle-dp", Fraction(1)),
            ("local-dp", Fraction(10)),
        )
        for arms, (base, lead) in ((2, (0.5, 0.0)), (4, (0.01, 1e-3)))
        for survivors in PATTERNS
        if survivors != _ALL
    ]
    rows += [
        Field(16, base, lead, survivors="uneven, some void")
        for base, lead in ((0.01, 1e-3), (0.99, 1e-3))
    ]
    return rows + sharpest()


def sharpest() -> list[Field]:
    """Return fields whose test wastes least: few, nearly independent batches."""
    return [
        Field(arms, 0.5, 0.0, mechanism, Fraction(10), ratio=Fraction(10))
        for arms in (2, 4)
        for mechanism in ("dist-dp", "non-private")
    ]


def played(field: Field, times: int, runs: int) -> Row:
    """Play a field; `times` is the factor of the level."""
    spec = PolicySpec(
        policy="elimination",
        arms=field.arms,
        horizon=USERS_PER_ARM * field.arms,
        mechanism=field.mechanism,
        epsilon=field.epsilon,
        failure_probability=times * P,
        ratio=field.ratio,
        honest_fraction=Fraction(4, 5),
    )
    means = np.full((runs, field.arms), field.base)
    means[:, 0] += field.lead
    simulation = Simulation(spec, BernoulliRewards(means.ravel()), runs, SEED)
    engine = (
        FastElimination(simulation)
        if field.survivors == _ALL
        else UnevenElimination(simulation, PATTERNS[field.survivors])
    )
    for _ in engine.steps():
        pass
    fell = engine.eliminated_in
    # Where all are equal arm 0 stands for the best: p is promised to each.
    return Row(field, times, int((fell[:, 0] > 0).sum()), runs)


def cost(field: Field) -> float:
    """Guess how long a field takes: many arms last."""
    return field.arms * (1 if field.survivors == _ALL else 3)


class Kept:
    """Rows that an earlier, broken off check has played."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._known: dict[str, int] = {}
        if path is not None and path.exists():
            for line in path.read_text(encoding="utf-8").splitlines():
                found = json.loads(line)
                self._known[found["row"]] = found["dropped"]

    def row(self, field: Field, times: int, runs: int) -> Row:
        """Return a row, played now or before."""
        key = f"{field.name}, at {times} p, {runs} runs, {USERS_PER_ARM}"
        if key in self._known:
            return Row(field, times, self._known[key], runs)
        row = played(field, times, runs)
        if self._path is not None:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"row": key, "dropped": row.dropped}) + "\n")
        return row


def table(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """Sum rows up by mechanism, ε and survivors: how often at most, by COLUMNS."""
    lines: list[tuple[str, ...]] = [COLUMNS]
    kinds = dict.fromkeys(
        (row.field.mechanism, row.field.epsilon, row.field.survivors, row.times)
        for row in rows
    )
    for kind in kinds:
        same = [
            row
            for row in rows
            if (row.field.mechanism, row.field.epsilon, row.field.survivors, row.times)
            == kind
        ]
        worst = max(same, key=lambda row: row.dropped)
        mechanism, epsilon, survivors, times = kind
        lines.append(
            (
                mechanism,
                "p" if times == 1 else f"{times} p",
                f"{float(epsilon):g}",
                survivors,
                " ".join(str(k) for k in sorted({row.field.arms for row in same})),
                str(len(same)),
                str(worst.dropped),
                str(worst.runs),
                f"{100 * worst.high:.2f} %",
            )
        )
    return lines


def verdict(rows: Iterable[Row]) -> list[str]:
    """Say what is wrong: a level exceeded, or a check that does not notice."""
    wrong = []
    for row in rows:
        if row.times == 1 and row.high > float(P):
            wrong.append(f"{row.name}: {row.dropped} of {row.runs} exceed p")
        if row.times == DOUBLED and row.low <= float(P):
            wrong.append(f"{row.name}: {row.dropped} of {row.runs} went unnoticed")
    return wrong


def main() -> int:
    """Play the rows; exit code 1 when something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--only", default="", help="rows whose name has this")
    parser.add_argument("--times", type=int, default=1, help="play them at so many p")
    parser.add_argument("--keep", type=Path, help="remember rows here and go on")
    parser.add_argument("--write", type=Path, help="write the table here, as CSV")
    arguments = parser.parse_args()
    kept, runs = Kept(arguments.keep), arguments.runs
    asked = [(field, arguments.times) for field in sorted(fields(), key=cost)]
    if arguments.times == 1:
        asked += [(field, DOUBLED) for field in sharpest() if field.arms == 2]
    asked = [(field, at) for field, at in asked if arguments.only in field.name]
    rows: list[Row] = []
    start = time.process_time()
    for number, (field, at) in enumerate(asked, 1):
        rows.append(row := kept.row(field, at, runs))
        spent = f"{number}/{len(asked)}, {time.process_time() - start:.0f} s"
        print(f"{spent}: {row.name}: {row.dropped} of {runs}", flush=True)
    wrong = verdict(rows)
    level = "" if arguments.times == 1 else f", played at {arguments.times} p"
    print(f"{len(rows)} rows{level}", *(wrong or ["nothing is wrong"]), sep="\n")
    if arguments.write:
        note = f"make check-decide: {len(rows)} rows of {runs:,} runs, p = {float(P):g}"
        write_csv(arguments.write, note, table(rows))
    return min(len(wrong), 1)


if __name__ == "__main__":
    sys.exit(main())
