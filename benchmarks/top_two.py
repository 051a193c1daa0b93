"""``python -m benchmarks.top_two``: would asking leader and challenger decide sooner?

A prototype of the policy ``dp-tt`` beside elimination (docs/decisions says what came of
it). Every arm has cohorts of its own, geometric as elimination's; the next one goes to
the leader until it is `lag` cohorts ahead of its challenger (the arm it is least surely
better than), then to the challenger. Arms fall by a mixture test on noised sums with
exponents for what the two arms have; p is shared over batches and lags.
"""

from __future__ import annotations

import argparse
import math
from functools import cache

import numpy as np
from numpy.typing import NDArray

from benchmarks.decide import EPSILONS, HORIZON, ROWS, Means, simulation
from wallflower.regret.draws import CohortDraws
from wallflower.regret.elimination import groups
from wallflower.regret.setup import build_engine
from wallflower.regret.simulation import Simulation, run
from wallflower.strategy.bandit.cells import (
    Cells,
    Delivered,
    cohort_weights,
    sampling,
    unit_cells,
)
from wallflower.strategy.bandit.confidence import confidence_for
from wallflower.strategy.bandit.evidence import Evidence
from wallflower.strategy.bandit.pair_test import (
    DIFFERENCE_WEIGHT,
    INSIDE,
    LARGEST_EXPONENT,
    SCALES,
    TILTS,
    PairDesign,
    likeliest,
)
from wallflower.strategy.bandit.schedule import Schedule

Doubles = NDArray[np.float64]

# Parts of a batch's share for a leader so many cohorts ahead; they sum to one at most.
LAGS = {-1: 0.05, 0: 0.2, 1: 0.3, 2: 0.2}
LAGS |= {lag: 0.25 * 0.5 ** (lag - 2) for lag in range(3, 20)}


def uneven_design(
    leader: Delivered, rival: Delivered, threshold: float, cells: Cells
) -> PairDesign:
    """Choose exponents for arms with different plans, as `PairDesign.planned` does."""
    sides = [(plan, *cohort_weights(plan, cells.variance)) for plan in (leader, rival)]
    # Per cell: weights of a mean, and its variance.
    units = [weights / (weights @ plan.users)[:, None] for plan, weights, _ in sides]
    spreads = [
        (spread / (weights @ plan.users)) ** 2 for plan, weights, spread in sides
    ]
    mosts = [
        np.array([INSIDE * (60.0 if n is None else n.limit) for n in plan.noises])
        for plan, _, _ in sides
    ]
    gaussian = (math.sqrt(2 * threshold) / np.sqrt(spreads[0] + spreads[1]))[:, None]
    best = [np.zeros_like(unit) for unit in units]
    needed = np.full(len(cells.low), np.inf)
    for scale in SCALES:
        tried = [
            np.minimum(scale * gaussian * unit, np.minimum(most, LARGEST_EXPONENT))
            for unit, most in zip(units, mosts, strict=True)
        ]
        reach = [
            (a * plan.users).sum(axis=1)
            for a, (plan, *_) in zip(tried, sides, strict=True)
        ]
        price = threshold - cells.middle * (reach[0] - reach[1])
        for side, a, (plan, *_) in zip((1, -1), tried, sides, strict=True):
            price += sampling(plan.users, side * a, cells.middle) + plan.noise(a)
        lead = price / np.minimum(*reach)
        better = lead < needed
        needed = np.where(better, lead, needed)
        best = [
            np.where(better[:, None], a, b) for a, b in zip(tried, best, strict=True)
        ]
    common = np.sqrt(1 / (1 / spreads[0] + 1 / spreads[1]))
    leading, trailing = [best[0]], [-best[1]]
    for tilt in TILTS:
        for sign in (1.0, -1.0):
            shifts = [
                sign
                * np.minimum(
                    (tilt * common / spread)[:, None] * unit,
                    np.minimum(exponents, np.maximum(most - exponents, 0.0)),
                )
                for unit, spread, exponents, most in zip(
                    units, spreads, best, mosts, strict=True
                )
            ]
            leading.append(best[0] + shifts[0])
            trailing.append(shifts[1] - best[1])
    tilted = (1 - DIFFERENCE_WEIGHT) / (2 * len(TILTS))
    shares = np.array([DIFFERENCE_WEIGHT] + [tilted] * (2 * len(TILTS)))
    exponents = np.array(leading), np.array(trailing)
    return PairDesign(*exponents, np.log(shares), threshold, cells)


class TopTwo:
    """Plays the prototype on every instance of a simulation."""

    def __init__(self, what: Simulation, free: bool = False) -> None:
        self._spec = what.spec.resolved()
        self._free = free  # every lag at the whole share: promises nothing
        assert self._spec.ratio is not None
        self._schedule = Schedule(self._spec.ratio, self._spec.first_batch)
        self._evidence = Evidence(self._spec)
        self._wrap = confidence_for(self._spec).wrap
        self._draws = CohortDraws(what.model, what.seed)
        self._best = np.argmax(what.means, axis=1)
        self._shape = (what.instances, self._spec.arms)
        self._cohorts = np.zeros(self._shape, dtype=np.int64)
        self._users = np.zeros(self._shape)
        self._sums: list[Doubles] = []
        self._active = np.ones(self._shape, dtype=np.bool_)
        self._whole = cache(self._design)
        self._plan = cache(self._planned)

    def run(self) -> tuple[Doubles, int, int]:
        """Give users of every instance, how many are undecided, how many erred."""
        for arm in range(self._shape[1]):
            self._ask(np.arange(self._shape[0]), np.full(self._shape[0], arm))
        while len(rows := self._racing()):
            estimates, variances = self._standing(rows)
            self._drop(rows, np.argmax(estimates, axis=1))
            here = np.isin(rows, self._racing())
            rows, standing = rows[here], (estimates[here], variances[here])
            self._ask(rows, self._choose(rows, *standing))
        wrong = ~self._active[np.arange(self._shape[0]), self._best]
        users = self._users.sum(axis=1)
        return users, int((self._active.sum(axis=1) > 1).sum()), int(wrong.sum())

    def _racing(self) -> NDArray[np.intp]:
        """Instances with several arms left and users to ask."""
        several = self._active.sum(axis=1) > 1
        return np.flatnonzero(several & (self._users.sum(axis=1) < HORIZON))

    def _ask(self, rows: NDArray[np.intp], arms: NDArray[np.intp]) -> None:
        numbers = self._cohorts[rows, arms] + 1
        for number in np.unique(numbers).tolist():
            here = numbers == number
            size = self._schedule.size(number)
            floor = self._spec.floor(size)
            cohort = self._spec.calibrated(size, floor, self._wrap(number))
            who, which = rows[here], arms[here]
            totals = self._draws.totals(who * self._shape[1] + which, cohort)
            if len(self._sums) < number:
                self._sums.append(np.zeros(self._shape))
            self._sums[number - 1][who, which] = totals / cohort.precision
            self._cohorts[who, which] = number
            self._users[who, which] += size

    def _planned(self, cohorts: int) -> Delivered:
        return self._evidence.delivered(self._evidence.planned(cohorts), cohorts)

    def _standing(self, rows: NDArray[np.intp]) -> tuple[Doubles, Doubles]:
        """Estimates of the arms that are left, and their variances."""
        shape = (len(rows), self._shape[1])
        estimates, variances = np.full(shape, -np.inf), np.ones(shape)
        for number in np.unique(self._cohorts[rows]).tolist():
            here = (self._cohorts[rows] == number) & self._active[rows]
            sums = np.stack(self._sums[:number], axis=2)[rows][here]
            plan = self._plan(number)
            estimates[here] = self._evidence.estimates(plan.users, sums)
            mean = np.clip(estimates[here], 1e-6, 1 - 1e-6)
            noise = sum(n.variance for n in plan.noises if n is not None)
            users = plan.users.sum()
            variances[here] = (mean * (1 - mean) * users + noise) / users**2
        return estimates, variances

    def _choose(
        self, rows: NDArray[np.intp], estimates: Doubles, variances: Doubles
    ) -> NDArray[np.intp]:
        """Leader or challenger: whoever is behind the lag that suits the race."""
        at = np.arange(len(rows))
        # Upper bounds and ln n come back to an arm that few users misled about.
        total = self._users[rows].sum(axis=1, keepdims=True)
        leaders = np.argmax(estimates + np.sqrt(2 * np.log(total) * variances), axis=1)
        lead = np.maximum(estimates[at, leaders][:, None] - estimates, 0.0)
        cost = lead**2 / (2 * (variances + variances[at, leaders][:, None]))
        cost += np.log(self._users[rows])
        cost[~self._active[rows]] = np.inf
        cost[at, leaders] = np.inf
        challengers = np.argmin(cost, axis=1)
        left = np.maximum(self._active[rows].sum(axis=1), 2)
        ratio = float(self._spec.ratio or 2)
        # √(arms − 1) times the users of each other arm are best for equal gaps.
        lag = np.rint(0.5 * np.log(left - 1) / math.log(ratio)).astype(np.int64)
        ahead = self._cohorts[rows, leaders] - self._cohorts[rows, challengers]
        return np.asarray(np.where(ahead < lag, leaders, challengers))

    def _drop(self, rows: NDArray[np.intp], leaders: NDArray[np.intp]) -> None:
        many = self._cohorts[rows, leaders]
        for arm in range(self._shape[1]):
            few = self._cohorts[rows, arm]
            rival = self._active[rows, arm] & (leaders != arm)
            for one, other in groups(many, few, rival):
                if one - other not in LAGS:
                    continue
                here = np.flatnonzero(rival & (many == one) & (few == other))
                falls = self._falls(one, other, rows[here], leaders[here], arm)
                self._active[rows[here[falls]], arm] = False

    def _falls(
        self,
        one: int,
        other: int,
        rows: NDArray[np.intp],
        leaders: NDArray[np.intp],
        arm: int,
    ) -> NDArray[np.bool_]:
        sides = self._plan(one), self._plan(other)
        sums = (
            np.stack(self._sums[:one], axis=2)[rows, leaders],
            np.stack(self._sums[:other], axis=2)[rows, np.full(len(rows), arm)],
        )
        cells, where = np.unique(likeliest(*sides, *sums), return_inverse=True)
        first = self._design(one, other, unit_cells().at(cells))
        found = first.at(where, *sides, *sums)
        convinced = found > first.threshold
        if convinced.any():
            rest = sums[0][convinced], sums[1][convinced]
            found[convinced] = self._whole(one, other).evidence(*sides, *rest)
        return np.asarray(found > first.threshold)

    def _design(self, one: int, other: int, cells: Cells | None = None) -> PairDesign:
        share = self._spec.shares.pair(max(one, other), self._spec.arms)
        level = float(share) * (1.0 if self._free else LAGS[one - other])
        return uneven_design(
            self._plan(one), self._plan(other), -math.log(level), cells or unit_cells()
        )


def ideal(means: Means) -> float:
    """Users of the best allocation over those of ideal elimination, without noise.

    Gaussian rewards of one variance; an arm falls when gap² = c (1/n + 1/m).
    """
    gaps = np.sort(means)[::-1][0] - np.sort(means)[::-1][1:]
    elimination = (2 / gaps**2).sum() + 2 / gaps.min() ** 2
    leader = np.geomspace(1.01 / gaps.min() ** 2, 100 / gaps.min() ** 2, 10_000)
    others = 1 / (gaps[:, None] ** 2 - 1 / leader)
    return float((leader + others.sum(axis=0)).min() / elimination)


def main() -> None:
    """Print both rules' users for every row and ε.

    *lags for nothing* is the ratio if p were not shared over lags, which would promise
    nothing; *ideal* that of the best allocation to elimination, without any noise.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--instances", type=int, default=200)
    instances = parser.parse_args().instances
    print("| means | ε | elimination | top two | ratio | lags for nothing | ideal |")
    print("|---|---|---|---|---|---|---|")
    errors = 0
    for means in ROWS:
        for epsilon in EPSILONS:
            what = simulation(means, epsilon, instances)
            users, undecided, wrong = TopTwo(what).run()
            free, _, _ = TopTwo(what, free=True).run()
            before = run(build_engine(what)).asked.mean()
            name = " ".join(f"{mean:g}" for mean in means)
            more = "> " if undecided else ""
            print(
                f"| {name} | {float(epsilon):g} | {before:,.0f} | {more}"
                f"{users.mean():,.0f} | {users.mean() / before:.2f} | "
                f"{free.mean() / before:.2f} | {ideal(means):.2f} |",
                flush=True,
            )
            errors = max(errors, wrong)
    print(f"the best arm fell in at most {errors} of {instances} runs")


if __name__ == "__main__":
    main()
