"""Which pairs of means the joint test leaves, and so which differences and ratios.

Let arm i be compared with arm j. A pair of means belongs to the cell of its middle
κ = (μ_i + μ_j)/2, whose exponents a ≥ 0 ≥ b test it as `pair_test` does, priced at
μ_i = κ + d/2 and μ_j = κ − d/2. The price Ψ rises with d. So in every cell the test
rules out all differences d up to some point, and the same test with i and j exchanged
rules out all from some point on. What is left of all cells is a region of pairs

    {(κ, d) : least_C ≤ d ≤ most_C for κ in C}.

At the true pair both tests are supermartingales that start below 1. By Ville's
inequality the region misses the true pair after any round with probability at most two
levels (`Shares.difference`). Difference and ratio are read from the same region, so
both hold at once: the ratio costs nothing more.

With d = 0 this is the test by which arms fall, at a smaller level.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from wallflower.strategy.bandit.cells import (
    Cells,
    Delivered,
    Doubles,
    Places,
    sampling_and_slope,
    unit_cells,
)
from wallflower.strategy.bandit.pair_test import (
    PairDesign,
    log_sum,
    noise_and_rounding,
)
from wallflower.strategy.bandit.schedule import History
from wallflower.strategy.bandit.sequential_test import SequentialTest

Sums = tuple[Doubles, Doubles]  # a row of each arm

_STEPS = 5  # of Newton's method
# Where so few people could make the difference no sum tells anything apart.
_TOO_FEW = 0.05
_SHORT = 1e-3  # nats by which the search aims beyond the threshold
_NEVER = np.inf


@dataclass(frozen=True, slots=True)
class Ends:
    """Lower and upper end; None where that side has no bound."""

    lower: float | None
    upper: float | None


@dataclass(frozen=True, eq=False)
class PairRegion:
    """Cells of the two arms' middle, and the differences that are left in each.

    Examples
    --------
    >>> one = np.array([0.25])
    >>> region = PairRegion(Cells(one, 2 * one), 0 * one, 0.5 * one)
    >>> region.difference()
    Ends(lower=0.0, upper=0.125)
    >>> region.ratio()
    Ends(lower=1.0, upper=1.6666666666666667)
    """

    cells: Cells
    least: Doubles
    most: Doubles

    def difference(self) -> Ends:
        """Return the ends of μ_i − μ_j."""
        if not len(self.least):
            return Ends(-1.0, 1.0)  # it happens with the probability of an error
        return Ends(float(self.least.min()), float(self.most.max()))

    def ratio(self, offset: float = 0.0) -> Ends:
        """Return the ends of (μ_i + offset)/(μ_j + offset).

        A ratio of linear functions has its extremes in the corners of each cell. Where
        μ_j + offset may be 0 there is no upper end, and where it may be less, none.
        """
        if not len(self.least):
            return Ends(None, None)
        halves = np.array([self.least, self.most])[None] / 2
        middles = np.array([self.cells.low, self.cells.high])[:, None]
        middles = np.clip(middles, np.abs(halves), 1 - np.abs(halves))
        above, below = middles + halves + offset, middles - halves + offset
        if (below < 0).any():
            return Ends(None, None)
        if ((below == 0) & (above <= 0)).any():
            return Ends(0.0 if offset == 0 else None, None)
        with np.errstate(divide="ignore"):
            ratios = above / below
        upper = float(ratios.max())
        return Ends(float(ratios.min()), upper if np.isfinite(upper) else None)


# Of arms that nobody was asked about.
EVERYTHING = PairRegion(
    Cells(np.array([0.0]), np.array([1.0])), np.array([-1.0]), np.array([1.0])
)


def find_region(
    test: SequentialTest,
    batch: int,
    heard: tuple[History, History],
    lowest: Sums,
    highest: Sums,
) -> PairRegion:
    """Return the pairs of means that are left after batch `batch`.

    Sums are one row of each arm. `lowest` are those that make the difference smallest,
    `highest` largest; they are the same where nobody is missing. The regions of all
    pairs after all batches miss a true pair of means with probability at most p.
    """
    sides = test.delivered(heard[0], batch), test.delivered(heard[1], batch)
    first, second = (
        float(test.estimates(side.users, (low + high) / 2)[0])
        for side, low, high in zip(sides, lowest, highest, strict=True)
    )
    guesses, cells = (first, second), unit_cells()
    places = _open_cells(test, batch, sides, (lowest, highest), guesses)
    people = float(sides[0].users.sum() + sides[1].users.sum())
    enough = cells.widest[places] * people >= _TOO_FEW
    design = replace(
        test.design(batch, test.mixed(batch), places[enough]),
        threshold=test.difference_threshold,
    )
    guess = guesses[0] - guesses[1]
    least = -cells.widest[places]
    most = -least
    least[enough] = least_differences(design, sides, lowest, guess)
    most[enough] = -least_differences(design, sides[::-1], highest[::-1], -guess)
    kept = least <= most
    return PairRegion(cells.at(places[kept]), least[kept], most[kept])


def _open_cells(
    test: SequentialTest,
    batch: int,
    sides: tuple[Delivered, Delivered],
    sums: tuple[Sums, Sums],
    guesses: tuple[float, float],
) -> Places:
    """Return the cells that a tilted branch of the own aim does not rule out.

    A cell is ruled out where one test excludes all differences up to a guess, and the
    other all from there on; at the largest difference of a cell one is enough. The tilt
    is towards where the sums are.
    """
    cells, outer = unit_cells(), test.outer_design(batch)
    low = (cells.middle > sum(guesses) / 2).astype(np.intp)  # OUTERMOST: high, low
    every = np.arange(len(low))
    design = replace(
        outer,
        leading=outer.leading[low, every][None],
        trailing=outer.trailing[low, every][None],
        log_weights=outer.log_weights[:1],
    )
    shifts = np.clip(guesses[0] - guesses[1], -cells.widest, cells.widest)
    lowest, (one, other) = sums
    below = design.shifted(shifts).everywhere(*sides, *lowest)[0]
    above = design.shifted(-shifts).everywhere(sides[1], sides[0], other, one)[0]
    threshold = test.difference_threshold
    up_to = (below > threshold) | (shifts <= -cells.widest)
    from_there = (above > threshold) | (shifts >= cells.widest)
    return np.flatnonzero(~(up_to & from_there))


def least_differences(
    design: PairDesign,
    sides: tuple[Delivered, Delivered],
    sums: Sums,
    guess: float,
) -> Doubles:
    """Return up to where each cell's differences are ruled out; ∞: all of them.

    `design` has no shift yet. Evidence falls with the difference and is convex, so
    Newton's steps come near from the side that is ruled out. Only a difference that is
    found to be ruled out counts.
    """
    search = _Search(design, sides, sums)
    widest = design.cells.widest
    found = -widest
    ruled = search.evidence(widest)[0] > design.threshold
    tried = np.clip(guess, -widest, widest)
    for _ in range(_STEPS):
        value, slope = search.evidence(tried)
        excess = value - design.threshold
        found = np.where(excess > 0, np.maximum(found, tried), found)
        excess -= _SHORT
        step = np.divide(excess, slope, out=np.zeros_like(slope), where=slope > 0)
        tried = np.clip(tried + step, found, widest)
    value, _ = search.evidence(tried)
    found = np.where(value > design.threshold, np.maximum(found, tried), found)
    return np.where(ruled, _NEVER, found)


class _Search:
    """The test of one pair of arms in some cells, at any difference of each."""

    def __init__(
        self,
        design: PairDesign,
        sides: tuple[Delivered, Delivered],
        sums: Sums,
    ) -> None:
        self._design = design
        self._one, self._other = one, other = sides
        fixed = design.leading @ sums[0][0] + design.trailing @ sums[1][0]
        fixed -= noise_and_rounding(design.leading, one)
        fixed -= noise_and_rounding(design.trailing, other)
        self._fixed = fixed + design.log_weights[:, None]

    def evidence(self, shifts: Doubles) -> tuple[Doubles, Doubles]:
        """Return each cell's evidence at its difference, and how fast it falls."""
        design = self._design.shifted(shifts)
        cells = design.cells
        shape = self._fixed.shape
        up, up_slope = sampling_and_slope(
            self._one.users, design.leading, np.broadcast_to(design.means(1), shape)
        )
        down, down_slope = sampling_and_slope(
            self._other.users, design.trailing, np.broadcast_to(design.means(-1), shape)
        )
        slope = up_slope + down_slope
        above, below = cells.high - cells.middle, cells.low - cells.middle
        psi = up + down + np.maximum(slope * above, slope * below)
        parts = self._fixed - psi
        total = log_sum(parts)
        shares = np.exp(parts - total)
        falls = (shares * (up_slope - down_slope)).sum(axis=0) / 2
        empty = cells.low > cells.high
        return np.where(empty, _NEVER, total), np.where(empty, 0.0, falls)
