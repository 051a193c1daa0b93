"""``python -m benchmarks.top_two``: would asking leader and challenger decide sooner?

A prototype of the policy ``dp-tt`` beside elimination (docs/decisions says what came of
it). Every arm has cohorts of its own, geometric as elimination's; the next one goes to
the leader until it is `lag` cohorts ahead of its challenger (the arm it is least surely
better than), then to the challenger. So which arm is asked next, and hence how many
cohorts each has, follows from noised sums.

An aim is a pair (m, n): exponents that suit best once the leader has m cohorts and the
rival n, for every cohort of both. Aims have weights w_max(m,n) · v_(m−n), Σ w ≤ 1 and
Σ v ≤ 1. Let arms i, j have μ_i ≤ μ_j, and let S be the sum of whichever cohort comes
next. Its arm and size are known before it, so given the past

    E exp(a S_i − n ln(1 + μ_i(eᵃ − 1)) − ln M(a)) ≤ 1   for a ≥ 0, and
    E exp(b S_j − n ln(1 + μ_i(eᵇ − 1)) − ln M(b)) ≤ 1   for b ≤ 0, as μ_j ≥ μ_i.

The mixture of all aims is therefore a supermartingale that starts at Σ w v ≤ 1 whatever
the order of the cohorts is; sums of other arms only choose that order. By Ville's
inequality it ever passes 1/α with probability at most α: neither looks nor lags cost a
union bound. Ψ of the cell of μ_i is no less than these prices together.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, lru_cache

import numpy as np
from numpy.typing import NDArray

from benchmarks.decide import EPSILONS, HORIZON, ROWS, Means, build_simulation
from wallflower.regret.draws import CohortDraws
from wallflower.regret.elimination import groups
from wallflower.regret.setup import build_engine
from wallflower.regret.simulation import Simulation, run
from wallflower.strategy.bandit.cells import (
    Delivered,
    Places,
    cohort_weights,
    sampling,
    unit_cells,
)
from wallflower.strategy.bandit.confidence import confidence_for
from wallflower.strategy.bandit.pair_test import (
    BRANCHES,
    INSIDE,
    LARGEST_EXPONENT,
    SCALES,
    PairDesign,
    likeliest,
)
from wallflower.strategy.bandit.schedule import Schedule
from wallflower.strategy.bandit.sequential_test import SequentialTest
from wallflower.strategy.bandit.spec import PolicySpec

Doubles = NDArray[np.float64]

# Weights v of a leader so many cohorts ahead; they sum to one at most.
LAGS = {-1: 0.05, 0: 0.2, 1: 0.3, 2: 0.2}
LAGS |= {lag: 0.25 * 0.5 ** (lag - 2) for lag in range(3, 20)}
# Aims that are added up beside a pair's own: cohorts before and after, and how much
# further one arm is. Leaving others out is safe.
_BEFORE, _AFTER, _ASKEW = 2, 3, 2
_HOPELESS = 5.0  # nats that the other aims do not make up for
_TOGETHER = 8


@dataclass(frozen=True, eq=False)
class UnevenAim:
    """As `pair_test.ExponentPlan`, of a leader (first) and a rival with plans of their
    own.
    """

    strength: tuple[Doubles, Doubles]
    tilting: tuple[Doubles, Doubles]

    @classmethod
    def at(cls, leader: Delivered, rival: Delivered, threshold: float) -> UnevenAim:
        """Choose what needs the smallest lead once both plans are delivered."""
        cells = unit_cells()
        plans = (leader, rival)
        both = [cohort_weights(plan, cells.variance) for plan in plans]
        reach = [w @ plan.users for plan, (w, _) in zip(plans, both, strict=True)]
        # Variances of the two means.
        first, second = (
            (spread / n) ** 2 for n, (_, spread) in zip(reach, both, strict=True)
        )
        gaussian = math.sqrt(2 * threshold) / np.sqrt(first + second)
        knots = cells.knots
        price = np.full((len(SCALES), len(knots)), threshold)
        users = []
        for sign, plan, n, (weights, _) in zip(
            (1, -1), plans, reach, both, strict=True
        ):
            most = np.minimum(INSIDE * plan.limits, LARGEST_EXPONENT)
            tried = (gaussian[knots] / n[knots])[:, None] * weights[knots]
            tried = np.minimum(SCALES[:, None, None] * tried, most)
            users.append(tried @ plan.users)
            middle = np.broadcast_to(cells.middle[knots], tried.shape[:2])
            price += sampling(plan.users, sign * tried, middle) + plan.noise(tried)
            price -= sign * middle * users[-1]
        lead = price / np.minimum(*users)
        scales = cells.between(SCALES[lead.argmin(axis=0)]) * gaussian
        common = np.sqrt(1 / (1 / first + 1 / second))
        return cls(
            (scales / reach[0], scales / reach[1]),
            (common / (first * reach[0]), common / (second * reach[1])),
        )


class UnevenPairs:
    """The test of two arms whose cohorts came in any order."""

    def __init__(self, spec: PolicySpec) -> None:
        self._shares, self._arms = spec.shares, spec.arms
        self._evidence = SequentialTest(spec)
        self.threshold = -math.log(self._shares.ever(spec.arms))
        self.plan = cache(self._planned)
        self._aim = cache(self._aimed)
        self._own = lru_cache(maxsize=32)(self._alone)

    def falls(
        self, one: int, other: int, leading: Doubles, trailing: Doubles
    ) -> NDArray[np.bool_]:
        """Rivals that are surely worse, by sums of so many cohorts of both, in rows."""
        if one - other not in LAGS:
            return np.zeros(len(leading), dtype=np.bool_)
        sides = self.plan(one), self.plan(other)
        places = likeliest(*sides, leading, trailing)
        own = self._own(one, other)
        found = own.at(places, *sides, leading, trailing)
        near = np.flatnonzero(found > self.threshold - _HOPELESS)
        if len(near):
            cells, where = np.unique(places[near], return_inverse=True)
            design = self.design(self.mixed(one, other), one, other, cells)
            found[near] = design.at(where, *sides, leading[near], trailing[near])
        sure = np.flatnonzero(found > self.threshold)
        for start in range(0, len(sure), _TOGETHER):
            some = sure[start : start + _TOGETHER]
            rows = leading[some], trailing[some]
            bounds = own.everywhere(*sides, *rows)
            cells = np.flatnonzero((bounds <= self.threshold).any(axis=0))
            if len(cells):
                design = self.design(self.mixed(one, other), one, other, cells)
                found[some] = design.everywhere(*sides, *rows).min(axis=1)
        return np.asarray(found > self.threshold)

    def mixed(self, one: int, other: int) -> list[tuple[int, int]]:
        """Aims that are added up for arms of so many cohorts."""
        steps = range(-_BEFORE, _AFTER + 1)
        return [
            (one + a, other + b)
            for a in steps
            for b in steps
            if abs(a - b) <= _ASKEW
            and min(one + a, other + b) >= 1
            and one + a - other - b in LAGS
        ]

    def design(
        self,
        aims: Iterable[tuple[int, int]],
        one: int,
        other: int,
        at: Places | None = None,
    ) -> PairDesign:
        """Exponents that the aims give the cohorts of both; in the cells `at`."""
        cells = unit_cells() if at is None else unit_cells().at(at)
        plans = self.plan(one), self.plan(other)
        weights = [cohort_weights(plan, cells.variance)[0] for plan in plans]
        mosts = [INSIDE * plan.limits for plan in plans]
        exponents: tuple[list[Doubles], list[Doubles]] = ([], [])
        log_weights = []
        for pair in aims:
            aim = self._aim(*pair)
            for tilt, part in BRANCHES.items():
                log_weights.append(self._log_weight(*pair) + math.log(part))
                for side, sign in ((0, 1), (1, -1)):
                    strength, tilting = aim.strength[side], aim.tilting[side]
                    if at is not None:
                        strength, tilting = strength[at], tilting[at]
                    best = np.minimum(
                        strength[:, None] * weights[side],
                        np.minimum(mosts[side], LARGEST_EXPONENT),
                    )
                    room = np.minimum(best, np.maximum(mosts[side] - best, 0.0))
                    shift = np.minimum(
                        abs(tilt) * tilting[:, None] * weights[side], room
                    )
                    exponents[side].append(math.copysign(1, tilt) * shift + sign * best)
        both = np.array(exponents[0]), np.array(exponents[1])
        return PairDesign(*both, np.array(log_weights), self.threshold, cells)

    def _alone(self, one: int, other: int) -> PairDesign:
        return self.design([(one, other)], one, other)

    def _log_weight(self, one: int, other: int) -> float:
        weight = float(self._shares.weight(max(one, other)))
        return math.log(weight * LAGS[one - other])

    def _aimed(self, one: int, other: int) -> UnevenAim:
        level = self._log_weight(one, other) - self.threshold
        return UnevenAim.at(self.plan(one), self.plan(other), -level)

    def _planned(self, cohorts: int) -> Delivered:
        return self._evidence.delivered(self._evidence.planned(cohorts), cohorts)


class TopTwo:
    """Plays the prototype on every instance of a simulation."""

    def __init__(self, what: Simulation) -> None:
        self._spec = what.spec.resolved()
        assert self._spec.ratio is not None
        self._schedule = Schedule(self._spec.ratio, self._spec.first_batch)
        self._evidence = SequentialTest(self._spec)
        self._wrap = confidence_for(self._spec).wrap
        self._draws = CohortDraws(what.model, what.seed)
        self._best = np.argmax(what.means, axis=1)
        self._shape = (what.instances, self._spec.arms)
        self._cohorts = np.zeros(self._shape, dtype=np.int64)
        self._users = np.zeros(self._shape)
        self._sums: list[Doubles] = []
        self._active = np.ones(self._shape, dtype=np.bool_)
        self._pairs = UnevenPairs(self._spec)

    def run(self) -> tuple[Doubles, int, int]:
        """Return users of every instance, how many are undecided, how many erred."""
        for arm in range(self._shape[1]):
            self._ask(np.arange(self._shape[0]), np.full(self._shape[0], arm))
        while len(rows := self._racing()):
            estimates, variances = self._totals(rows)
            self._drop(rows, np.argmax(estimates, axis=1))
            here = np.isin(rows, self._racing())
            rows, totals = rows[here], (estimates[here], variances[here])
            self._ask(rows, self._choose(rows, *totals))
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

    def _totals(self, rows: NDArray[np.intp]) -> tuple[Doubles, Doubles]:
        """Estimates of the arms that are left, and their variances."""
        shape = (len(rows), self._shape[1])
        estimates, variances = np.full(shape, -np.inf), np.ones(shape)
        for number in np.unique(self._cohorts[rows]).tolist():
            here = (self._cohorts[rows] == number) & self._active[rows]
            sums = np.stack(self._sums[:number], axis=2)[rows][here]
            plan = self._pairs.plan(number)
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
                here = np.flatnonzero(rival & (many == one) & (few == other))
                sums = (
                    np.stack(self._sums[:one], axis=2)[rows[here], leaders[here]],
                    np.stack(self._sums[:other], axis=2)[rows[here], arm],
                )
                falls = self._pairs.falls(one, other, *sums)
                self._active[rows[here[falls]], arm] = False


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

    *ideal* is the ratio of the best allocation to elimination, without any noise.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--instances", type=int, default=200)
    instances = parser.parse_args().instances
    print("| means | ε | elimination | top two | ratio | ideal |")
    print("|---|---|---|---|---|---|")
    errors = 0
    for means in ROWS:
        for epsilon in EPSILONS:
            what = build_simulation(means, epsilon, instances)
            users, undecided, wrong = TopTwo(what).run()
            before = run(build_engine(what)).asked.mean()
            name = " ".join(f"{mean:g}" for mean in means)
            more = "> " if undecided else ""
            print(
                f"| {name} | {float(epsilon):g} | {before:,.0f} | {more}"
                f"{users.mean():,.0f} | {users.mean() / before:.2f} | "
                f"{ideal(means):.2f} |",
                flush=True,
            )
            errors = max(errors, wrong)
    print(f"the best arm fell in at most {errors} of {instances} runs")


if __name__ == "__main__":
    main()
