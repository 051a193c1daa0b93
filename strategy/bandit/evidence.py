"""What a policy may conclude from its sums: the `tight` test and intervals, by batch.

Designs follow from the plan (sizes, floors, levels of batches 1..b), prices from what
was delivered. Both are remembered for a while: a batch compares many arms, and most of
them share their history.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from wallflower.strategy.bandit.cells import (
    Cells,
    Delivered,
    cohort_weights,
    unit_cells,
)
from wallflower.strategy.bandit.confidence import CohortFacts
from wallflower.strategy.bandit.intervals import OwnDesign
from wallflower.strategy.bandit.noise_bound import Doubles, NoiseBound
from wallflower.strategy.bandit.pair_test import (
    PairDesign,
    Price,
    lead_needed,
    likeliest,
)
from wallflower.strategy.bandit.radius import cohort_noise
from wallflower.strategy.bandit.schedule import Schedule
from wallflower.strategy.bandit.spec import PolicySpec

Key = TypeVar("Key")
Value = TypeVar("Value")

# What was heard of an arm: places in the plan, from 1, and what came.
Heard = tuple[tuple[int, CohortFacts], ...]

# A design of 30 cohorts takes 5 MB, a price of one arm 160 KB.
_MOST_DESIGNS = 16
_MOST_PRICES = 256


@dataclass(frozen=True, eq=False)
class Verdict:
    """How sure it is that each rival trails its leader, in nats."""

    threshold: float
    evidence: Doubles

    @property
    def falls(self) -> NDArray[np.bool_]:
        """Rivals that are surely worse."""
        return np.asarray(self.evidence > self.threshold)


class Evidence:
    """The tests of one policy; shared by every experiment with the same settings."""

    def __init__(self, spec: PolicySpec) -> None:
        assert spec.ratio is not None, "a resolved spec has a ratio"
        self._spec = spec
        self._shares = spec.shares
        self._schedule = Schedule(spec.ratio, spec.first_batch)
        self._noises: dict[CohortFacts, NoiseBound] = {}
        self._pairs: dict[int, PairDesign] = {}
        self._asked_before = 0  # the batch of the last question
        self._owns: dict[tuple[int, int], OwnDesign] = {}
        self._weights: dict[int, Doubles] = {}
        self._prices: dict[tuple[int, bool, Heard], Price] = {}

    def compare(
        self,
        batch: int,
        leader: tuple[Heard, Doubles],
        rival: tuple[Heard, Doubles],
    ) -> Verdict:
        """Compare leaders with rivals after batch `batch`, row by row of their sums.

        All rows of a side were heard in the same cohorts; a row has `batch` entries,
        0 where nothing was delivered, in units of reward.
        """
        one, other = (self.delivered(side[0], batch) for side in (leader, rival))
        sums = leader[1], rival[1]
        heard = leader[0], rival[0]
        if batch not in self._pairs and batch != self._asked_before:
            # Few batches decide anything: exponents of all cells are worth their time
            # only where the likeliest cells convince, or for many questions.
            self._asked_before = batch
            cells, where = np.unique(likeliest(one, other, *sums), return_inverse=True)
            design = self._design(batch, unit_cells().at(cells))
            found = design.at(where, one, other, *sums)
            if not (found > design.threshold).any():
                return Verdict(design.threshold, found)
        design = self._pair_design(batch)
        found = design.evidence(one, other, *sums, lambda: self._both(batch, *heard))
        return Verdict(design.threshold, found)

    def interval(
        self, heard: Heard, sums: Doubles, level_batch: int
    ) -> tuple[Doubles, Doubles, Doubles]:
        """Estimate, lower and upper end of one arm's mean, for each row of sums."""
        cohorts = sums.shape[1]
        side = self.delivered(heard, cohorts)
        design = self._own_design(cohorts, level_batch)
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
        table = self._weight_table(len(users))
        cells = unit_cells()
        guess = np.full(len(sums), 0.5)
        for _ in range(2):
            weights = table[cells.containing(guess)]
            guess = (weights * sums).sum(axis=1) / np.maximum(weights @ users, 1e-300)
        return np.asarray(guess)

    def lead_needed(self, batch: int, mean: float) -> float:
        """Give the lead about `mean` at which planned cohorts make a rival fall."""
        level = self._shares.pair(batch, self._spec.arms)
        return lead_needed(*self._planned(batch), _nats(level), mean)

    def delivered(self, heard: Heard, cohorts: int) -> Delivered:
        """Put the cohorts of one arm at their places in the plan."""
        users = np.zeros(cohorts)
        noises: list[NoiseBound | None] = [None] * cohorts
        for place, facts in heard:
            users[place - 1] = facts.survivors
            noises[place - 1] = self._noise(facts)
        return Delivered(users, tuple(noises))

    def planned(self, cohorts: int) -> Heard:
        """Give the cohorts that the schedule plans, everybody answering."""
        sizes = [self._schedule.size(number) for number in range(1, cohorts + 1)]
        return tuple(
            (number, CohortFacts(number, size, self._spec.floor(size), size))
            for number, size in enumerate(sizes, 1)
        )

    def _planned(self, cohorts: int) -> tuple[list[int], list[NoiseBound]]:
        plan = [facts for _, facts in self.planned(cohorts)]
        return [facts.size for facts in plan], [self._noise(facts) for facts in plan]

    def _pair_design(self, batch: int) -> PairDesign:
        if batch not in self._pairs:
            _make_room(self._pairs, _MOST_DESIGNS)
            self._pairs[batch] = self._design(batch)
        return self._pairs[batch]

    def _design(self, batch: int, cells: Cells | None = None) -> PairDesign:
        level = self._shares.pair(batch, self._spec.arms)
        return PairDesign.planned(*self._planned(batch), _nats(level), cells)

    def _both(self, batch: int, leader: Heard, rival: Heard) -> tuple[Price, Price]:
        return self._price(batch, True, leader), self._price(batch, False, rival)

    def _price(self, batch: int, leads: bool, heard: Heard) -> Price:
        key = (batch, leads, heard)
        if key not in self._prices:
            _make_room(self._prices, _MOST_PRICES)
            design = self._pair_design(batch)
            price = design.leader_price if leads else design.rival_price
            self._prices[key] = price(self.delivered(heard, batch))
        return self._prices[key]

    def _own_design(self, cohorts: int, level_batch: int) -> OwnDesign:
        key = (cohorts, level_batch)
        if key not in self._owns:
            _make_room(self._owns, _MOST_DESIGNS)
            level = self._shares.side(level_batch, self._spec.arms)
            self._owns[key] = OwnDesign.planned(*self._planned(cohorts), _nats(level))
        return self._owns[key]

    def _weight_table(self, cohorts: int) -> Doubles:
        if cohorts not in self._weights:
            sizes, noises = self._planned(cohorts)
            plan = Delivered(np.array(sizes, dtype=float), tuple(noises))
            self._weights[cohorts], _ = cohort_weights(plan, unit_cells().variance)
        return self._weights[cohorts]

    def _noise(self, facts: CohortFacts) -> NoiseBound:
        if facts not in self._noises:
            wrap = self._shares.wrap(facts.level_batch, self._spec.arms)
            cohort = self._spec.calibrated(facts.size, facts.floor, wrap)
            self._noises[facts] = NoiseBound.of(cohort_noise(cohort, facts.survivors))
        return self._noises[facts]


def _make_room(known: dict[Key, Value], most: int) -> None:
    """Forget the oldest entry of a full memory."""
    if len(known) >= most:
        del known[next(iter(known))]


def _nats(level: Fraction) -> float:
    return math.log(level.denominator) - math.log(level.numerator)


@lru_cache(maxsize=64)
def evidence_for(spec: PolicySpec) -> Evidence:
    """Give the tests of a resolved spec, the same object for the same spec."""
    return Evidence(spec)
