"""What a policy may conclude from its sums: the `tight` test and intervals, by batch.

The plan has milestones, each with a quarter more users than the one before. Every
milestone gives the test of a pair exponents that suit it best (an aim), for all
cohorts; aim k has the weight w_k, Σ w ≤ 1. Let M(t) be the mixture of all aims after
batch t, in the cell of a mean between μ_i ≤ μ_j: each cohort multiplies an aim's part
by a factor of mean at most one given the past, so M is a supermartingale that starts at
Σ w, and

    P(M(t) ≥ 1/α for some t) ≤ α    (Ville's inequality).

So j falls as soon as M(t) > 1/α in every cell, and the batches need no union bound:
slower growth makes more looks, not more aims. Aims whose milestone is far off add next
to nothing and are left out, which is safe.

Aims follow from the plan (sizes, floors, levels), prices from what was delivered. Both
are remembered for a while: a batch compares many arms, and most of them share their
history. Cohorts of nearly one planned size are one group with one exponent
(`strategy.bandit.cells`), so that a test takes as long after a thousand batches as
after ten.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from wallflower.protocol.privacy.mechanism import LARGEST_COHORT
from wallflower.strategy.bandit.cells import (
    Delivered,
    Doubles,
    NoiseBound,
    Places,
    cohort_weights,
    unit_cells,
)
from wallflower.strategy.bandit.confidence import confidence_for, make_room
from wallflower.strategy.bandit.failure_budget import Shares
from wallflower.strategy.bandit.intervals import OwnDesign
from wallflower.strategy.bandit.pair_test import (
    BRANCHES,
    DIFFERENCE,
    OUTERMOST,
    ExponentPlan,
    LogPenalty,
    PairDesign,
    likeliest,
)
from wallflower.strategy.bandit.schedule import (
    CohortFacts,
    Grouping,
    History,
    Milestones,
    Schedule,
    count_cohorts,
    heard_from,
)
from wallflower.strategy.bandit.spec import PolicySpec

ArmData = tuple[
    History, Delivered
]  # what was heard of an arm, and as the tests take it

# Milestones before and after the nearest whose aims are mixed with its own.
_BEFORE, _AFTER = 6, 8
# A pair that the nearest aim leaves so many nats short is not convinced by the
# others either.
_HOPELESS = 4.0
# A design of 30 groups takes 5 MB, a price of one arm 160 KB.
_MOST_DESIGNS = 4
_TOGETHER = 64  # pairs whose open cells are looked at together
_MOST_PRICES = 64
_MOST_AIMS = 64
_MOST_PLANS = 64
_MOST_NOISES = 4096


@dataclass(frozen=True, eq=False)
class Verdict:
    """How sure it is that each rival trails its leader, in nats."""

    threshold: float
    evidence: Doubles

    @property
    def falls(self) -> NDArray[np.bool_]:
        """Rivals that are surely worse."""
        return np.asarray(self.evidence > self.threshold)


class SequentialTest:
    """The tests of one policy; shared by every experiment with the same settings."""

    def __init__(self, spec: PolicySpec) -> None:
        assert spec.ratio is not None, "a resolved spec has a ratio"
        self._spec = spec
        self._shares = spec.shares
        self._schedule = Schedule(spec.ratio, spec.first_batch)
        self._grouping = Grouping(self._schedule)
        self._milestones = Milestones(self._schedule)
        self._aim_shares = Shares(
            spec.failure_probability, self._milestones.reached_at(spec.most_batches) + 1
        )
        self._noises: dict[CohortFacts, NoiseBound] = {}
        self._planned: dict[int, History] = {0: ()}  # by the number of cohorts
        self._plans: dict[int, Delivered] = {}
        self._threshold = _nats(self._shares.ever(spec.arms))
        self._aims: dict[int, ExponentPlan] = {}
        self._pairs: dict[tuple[int, float], PairDesign] = {}
        self._owns: dict[int, OwnDesign] = {}
        self._prices: dict[tuple[int, float, bool, History], LogPenalty] = {}

    def compare(
        self,
        batch: int,
        leader: tuple[History, Doubles],
        rival: tuple[History, Doubles],
        *,
        shift: float = 0.0,
    ) -> Verdict:
        """Compare leaders with rivals after batch `batch`, row by row of their sums.

        All rows of a side were heard in the same cohorts; a row has an entry for each
        group of the plan, 0 where nothing was delivered, in units of reward. A rival
        falls that is surely worse than its leader by more than `shift`; if that is
        negative, it is surely not better by as much.
        """
        one, other = (self.delivered(side[0], batch) for side in (leader, rival))
        sides, sums = ((leader[0], one), (rival[0], other)), (leader[1], rival[1])
        allowed = allowed_places(shift)
        places = np.clip(likeliest(one, other, *sums), allowed[0], allowed[-1])
        cells, where = np.unique(places, return_inverse=True)
        design = self.design(batch, self.nearest(batch), cells).shifted(shift)
        found = design.at(where, one, other, *sums)
        near = np.flatnonzero(found > self._threshold - _HOPELESS)
        if len(near):
            rows = sums[0][near], sums[1][near]
            cells, where = np.unique(places[near], return_inverse=True)
            design = self.design(batch, self.mixed(batch), cells).shifted(shift)
            found[near] = design.at(where, one, other, *rows)
        sure = np.flatnonzero(found > self._threshold)
        if len(sure):
            sure = sure[np.argsort(places[sure], kind="stable")]
        for start in range(0, len(sure), _TOGETHER):
            some = sure[start : start + _TOGETHER]
            rows = sums[0][some], sums[1][some]
            found[some] = self._everywhere(batch, sides, rows, found[some], shift)
        return Verdict(self._threshold, found)

    @property
    def difference_threshold(self) -> float:
        """Nats that rule a difference out, so that those of all pairs hold together."""
        return _nats(self._shares.difference(self._spec.arms))

    def mixed(self, batch: int) -> range:
        """Milestones whose aims are mixed in the test after batch `batch`."""
        nearest = self._milestones.reached_at(batch)
        known = self._aim_shares.batches
        assert known is not None, "the milestones of a plan are counted"
        last = nearest
        while (
            last < min(nearest + _AFTER, known - 1)
            and self._schedule.size(self._milestones.place_of(last + 1))
            <= LARGEST_COHORT
        ):
            last += 1
        return range(max(0, nearest - _BEFORE), last + 1)

    def part_of(self, aims: range) -> Fraction:
        """Return the part of p that these aims and all before them can spend."""
        return sum(
            (self._aim_shares.batch(number + 1) for number in range(aims.stop)),
            Fraction(0),
        )

    def nearest(self, batch: int) -> tuple[int]:
        """Return the last milestone up to a batch, as `design` takes it."""
        return (self._milestones.reached_at(batch),)

    def interval(
        self, cohorts: int, heard: History, sums: Doubles
    ) -> tuple[Doubles, Doubles, Doubles]:
        """Estimate, lower and upper end of one arm's mean, for each row of sums.

        The newest cohort that came has the place `cohorts` in the plan. It chooses
        exponents and level, so there is one test for each place.
        """
        side = self.delivered(heard, cohorts)
        design = self._own_design(cohorts)
        lower, upper = design.lower(side, sums), design.upper(side, sums)
        # Sums that contradict every mean leave nothing: say all of [0, 1].
        empty = lower > upper
        lower, upper = np.where(empty, 0.0, lower), np.where(empty, 1.0, upper)
        return np.clip(self.estimates(side.users, sums), lower, upper), lower, upper

    def estimates(self, users: Doubles, sums: Doubles) -> Doubles:
        """Weighted mean of each row of sums; noise-drowned cohorts count less.

        The weights are those of a coin as likely as the first guess of the mean.
        Nothing is decided by them.
        """
        models, cells = self._models(len(users)), unit_cells()
        guess = np.full(len(sums), 0.5)
        for _ in range(2):
            variance = cells.variance[cells.containing(guess)]
            weights, _ = cohort_weights(models, variance)
            guess = (weights * sums).sum(axis=1) / np.maximum(weights @ users, 1e-300)
        return np.asarray(guess)

    def lead_needed(self, batch: int, mean: float) -> float:
        """Return the lead about `mean` at which planned cohorts make a rival fall."""
        place = unit_cells().containing(np.array([mean]))
        design = self.design(batch, self.mixed(batch), place, DIFFERENCE)
        return design.lead_needed(self._plan(batch))

    def group_of(self, place: int) -> int:
        """Return the group of the cohort at `place` of the plan, counted from 0."""
        return self._grouping.group_of(place)

    def delivered(self, heard: History, cohorts: int) -> Delivered:
        """Put what was heard of one arm beside the first `cohorts` of the plan."""
        users = np.zeros(self.group_of(cohorts) + 1)
        noises: list[NoiseBound | None] = [None] * len(users)
        for number, group in enumerate(heard):
            users[number] = sum(n * (one.survivors + one.absent) for one, n in group)
            # People without a sum bring no noise.
            parts = [(self._noise(one, number), n) for one, n in group if one.survivors]
            if parts:
                noises[number] = NoiseBound.of_sum(parts)
        return Delivered(users, tuple(noises))

    def planned(self, cohorts: int) -> History:
        """Return the cohorts that the schedule plans, everybody answering."""
        if cohorts not in self._planned:
            known = max(number for number in self._planned if number <= cohorts)
            more = [
                (self.group_of(place), self._facts(self._schedule.size(place)))
                for place in range(known + 1, cohorts + 1)
            ]
            found = heard_from(count_cohorts(self._planned[known], more))
            make_room(self._planned, _MOST_PLANS, keep=0)
            self._planned[cohorts] = found
        return self._planned[cohorts]

    def planned_until(self, last: int, newest: CohortFacts) -> History:
        """Return the planned cohorts before the place `last`, where `newest` came."""
        more = [(self.group_of(last), newest)]
        return heard_from(count_cohorts(self.planned(last - 1), more))

    def _facts(self, size: int) -> CohortFacts:
        return CohortFacts(size, self._spec.floor(size), size)

    def _plan(self, cohorts: int) -> Delivered:
        if cohorts not in self._plans:
            plan = self.delivered(self.planned(cohorts), cohorts)
            make_room(self._plans, _MOST_PLANS)
            models = self._models(len(plan.users))
            self._plans[cohorts] = replace(plan, first=models)
        return self._plans[cohorts]

    def _models(self, groups: int) -> Delivered:
        """Return the first cohort of each of the first groups of the plan."""
        first = [self._grouping.first_place(number) for number in range(groups)]
        sizes = [self._schedule.size(place) for place in first]
        noises = tuple(
            self._noise(self._facts(size), number) for number, size in enumerate(sizes)
        )
        return Delivered(np.array(sizes, dtype=float), noises)

    def _everywhere(
        self,
        batch: int,
        sides: tuple[ArmData, ArmData],
        sums: tuple[Doubles, Doubles],
        somewhere: Doubles,
        shift: float,
    ) -> Doubles:
        """Evidence of each pair in its worst cell; `somewhere` is that in another.

        Two branches of the own aim bound it from below, and leave few cells open: first
        for all pairs at once (evidence grows with the leader's sums and falls with the
        rival's), then for each.
        """
        one, other = (delivered for _, delivered in sides)
        leads, trails = (
            self._price(batch, shift, leads, side)
            for leads, side in zip((True, False), sides, strict=True)
        )
        both, allowed = (leads, trails), allowed_places(shift)
        outer = self.outer_design(batch, shift)
        worst = sums[0].min(axis=0)[None], sums[1].max(axis=0)[None]
        bound = outer.everywhere(one, other, *worst, both)[0]
        cells = np.flatnonzero(bound <= somewhere.max())
        bounds = outer.within(cells).everywhere(one, other, *sums)
        cells = cells[(bounds <= somewhere[:, None]).any(axis=0)]
        if not len(cells):
            return somewhere
        design = self.design(batch, self.mixed(batch), allowed[cells]).shifted(shift)
        found = design.everywhere(one, other, *sums).min(axis=1)
        return np.asarray(np.minimum(found, somewhere))

    def outer_design(self, batch: int, shift: float = 0.0) -> PairDesign:
        """Return the own aim's outermost branches in all cells that allow a shift."""
        if (batch, shift) not in self._pairs:
            make_room(self._pairs, _MOST_DESIGNS)
            aims = self.nearest(batch)
            design = self.design(batch, aims, allowed_places(shift), OUTERMOST)
            self._pairs[batch, shift] = design.shifted(shift)
        return self._pairs[batch, shift]

    def design(
        self,
        batch: int,
        mixed: Iterable[int],
        at: Places | None = None,
        branches: Iterable[float] = tuple(BRANCHES),
    ) -> PairDesign:
        """Exponents of the cohorts up to `batch` that the aims `mixed` give."""
        plan = self._plan(batch)
        return PairDesign.mixed(self.aims(mixed), plan, self._threshold, at, branches)

    def aims(self, milestones: Iterable[int]) -> dict[ExponentPlan, float]:
        """Return the aims of some milestones, each with the logarithm of its weight."""
        return {
            self._aim(number): -_nats(self._aim_shares.weight(number + 1))
            for number in milestones
        }

    def _aim(self, number: int) -> ExponentPlan:
        if number not in self._aims:
            make_room(self._aims, _MOST_AIMS)
            level = self._aim_shares.pair(number + 1, self._spec.arms)
            plan = self._plan(self._milestones.place_of(number))
            self._aims[number] = ExponentPlan.at(plan, _nats(level))
        return self._aims[number]

    def _price(
        self, batch: int, shift: float, leads: bool, side: ArmData
    ) -> LogPenalty:
        key = (batch, shift, leads, side[0])
        if key not in self._prices:
            make_room(self._prices, _MOST_PRICES)
            design = self.outer_design(batch, shift)
            price = design.leader_price if leads else design.rival_price
            self._prices[key] = price(side[1])
        return self._prices[key]

    def _own_design(self, cohorts: int) -> OwnDesign:
        if cohorts not in self._owns:
            make_room(self._owns, _MOST_DESIGNS)
            level = self._shares.side(cohorts, self._spec.arms)
            self._owns[cohorts] = OwnDesign.planned(self._plan(cohorts), _nats(level))
        return self._owns[cohorts]

    def _noise(self, facts: CohortFacts, group: int) -> NoiseBound:
        facts = CohortFacts(facts.size, facts.floor, facts.survivors)
        if facts not in self._noises:
            noise = confidence_for(self._spec).noise(facts, group)
            make_room(self._noises, _MOST_NOISES)
            self._noises[facts] = NoiseBound.of(noise)
        return self._noises[facts]


@lru_cache(maxsize=16)
def allowed_places(shift: float) -> Places:
    """Return the cells in which two means may differ by `shift`."""
    allowed = unit_cells().allowing(shift)
    return np.flatnonzero(allowed.low <= allowed.high)


def _nats(level: Fraction) -> float:
    return math.log(level.denominator) - math.log(level.numerator)


@lru_cache(maxsize=64)
def evidence_for(spec: PolicySpec) -> SequentialTest:
    """Return the tests of a resolved spec, the same object for the same spec."""
    return SequentialTest(spec)
