"""Intervals for one arm's own mean, by the same rates as the test between two arms.

A mean μ is ruled out from above the sum when, for the exponents a ≥ 0 of μ's cell,
Σ a S − Σ n ln(1 + μ(eᵃ−1)) − Σ ln M(a) > L, which happens to the true mean with
probability at most e^{−L}; from below likewise with a ≤ 0. With fixed exponents the
left side falls (rises) with μ, so a cell is ruled out whole, or up to one point, or not
at all. The interval is the hull of what is left: it never leaves [0, 1], and it is
short near 0 and 1, where a coin's variance is small.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from wallflower.strategy.bandit.cells import (
    ROUNDING,
    Delivered,
    Doubles,
    Places,
    cohort_weights,
    sampling,
    sampling_and_slope,
    unit_cells,
)
from wallflower.strategy.bandit.pair_test import INSIDE, LARGEST_EXPONENT, SCALES

_STEPS = 6  # cells are small: each squares what is missing


@dataclass(frozen=True, eq=False)
class OwnDesign:
    """Exponents of every cell and planned cohort for each side, and what to exceed.

    `above` (≥ 0) rules out means below the truth's sums; `below` (≤ 0) means above.
    """

    above: Doubles
    below: Doubles
    threshold: float

    @classmethod
    def planned(cls, plan: Delivered, threshold: float) -> OwnDesign:
        """Choose exponents that rule out most at planned sizes."""
        cells = unit_cells()
        weights, spread = cohort_weights(plan, cells.variance)
        gaussian = (math.sqrt(2 * threshold) / spread)[:, None] * weights
        most = np.minimum(INSIDE * plan.models.limits, LARGEST_EXPONENT)
        some = cells.at(cells.knots)
        tried = np.minimum(SCALES[:, None, None] * gaussian[cells.knots], most)
        reach, paid = tried @ plan.users, plan.noise(tried) + threshold
        sides = []
        for sign in (1.0, -1.0):
            price = sampling(plan.users, sign * tried, some.middle) + paid
            distance = price / reach - sign * some.middle
            scales = cells.between(SCALES[distance.argmin(axis=0)])
            sides.append(sign * np.minimum(scales[:, None] * gaussian, most))
        return cls(sides[0], sides[1], threshold)

    def lower(self, side: Delivered, sums: Doubles) -> Doubles:
        """Return the smallest mean that is not ruled out, one for each row of sums."""
        cells = unit_cells()
        spare = self._spare(self.above, side, sums)
        left = spare <= sampling(side.users, self.above, cells.high)
        first = np.argmax(left, axis=1)
        none = ~left.any(axis=1)
        ends = cells.low[first], cells.high[first]
        found = _crossing(self.above[first], side, _take(spare, first), *ends)
        return np.where(none, 1.0, found)

    def upper(self, side: Delivered, sums: Doubles) -> Doubles:
        """Return the largest mean that is not ruled out, one for each row of sums."""
        cells = unit_cells()
        spare = self._spare(self.below, side, sums)
        left = spare <= sampling(side.users, self.below, cells.low)
        last = left.shape[1] - 1 - np.argmax(left[:, ::-1], axis=1)
        none = ~left.any(axis=1)
        ends = cells.high[last], cells.low[last]
        found = _crossing(self.below[last], side, _take(spare, last), *ends)
        return np.where(none, 0.0, found)

    def _spare(self, exponents: Doubles, side: Delivered, sums: Doubles) -> Doubles:
        """Return what is left of Σ a S for sampling: rows are sums, columns cells."""
        noise = side.noise(exponents)
        lost = ROUNDING * (1 + noise + np.abs(exponents) @ side.users)
        paid = noise + self.threshold + 2 * lost
        return np.asarray(sums @ exponents.T - paid)


def _take(table: Doubles, columns: Places) -> Doubles:
    return np.asarray(table[np.arange(len(table)), columns])


def _crossing(
    exponents: Doubles, side: Delivered, spare: Doubles, start: Doubles, end: Doubles
) -> Doubles:
    """Where sampling(μ) passes `spare` in a cell, or short of it on the safe side.

    For exponents ≥ 0 sampling rises with μ and all from the lower end to the crossing
    is ruled out; for exponents ≤ 0 it falls, and all from the upper end is. It is
    concave, hence below its tangents: Newton's steps from there stay in what is.
    """
    found = start
    for _ in range(_STEPS):
        value, slope = sampling_and_slope(side.users, exponents, found)
        missing = spare - value
        further = (missing > 0) & (slope != 0)
        found = found + np.divide(missing, slope, out=0 * slope, where=further)
    return np.clip(found, np.minimum(start, end), np.maximum(start, end))
