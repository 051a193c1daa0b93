"""Which of two arms is better, whatever their common mean might be: a mixture test.

Let arm i lead arm j. For exponents a ≥ 0 ≥ b (one per cohort) and any mean μ between
μ_i and μ_j, if μ_i ≤ μ_j then

    E exp(Σ a S_i + Σ b S_j) ≤ exp Ψ(μ),
    Ψ(μ) = Σ n_i ln(1 + μ(eᵃ−1)) + Σ n_j ln(1 + μ(eᵇ−1)) + Σ ln M(a) + Σ ln M(b):

a reward in [0, 1], rounded at random to multiples of 1/g, has at most the MGF of a coin
with its mean; the first sum grows with μ_i and the second falls with μ_j, so both may
be taken at μ; M is the MGF of a cohort's noise. [0, 1] is cut into cells, each with its
own exponents and Ψ_C = max of Ψ over the cell. Then

    arm j falls when, for every cell C,  ln Σ_k w_k exp(a_k S_i + b_k S_j − Ψ_C,k) > L,

which happens to a better arm with probability at most e^{−L}: in the cell of μ_i the
sum of exponentials has mean at most Σ w_k = 1 (Markov). One branch k weighs the
difference alone (b = −a); the others tilt towards both sums being small or large, and
so rule out the cells that the two sums contradict. A common mean of 0.01 is therefore
paid for with the variance of 0.01, not of ½, without anybody knowing it beforehand.

Exponents follow from the *planned* sizes alone, Ψ from what was delivered. So survivors
and the size of a later cohort may depend on earlier sums: given the past, each
cohort's factor still has mean at most one.

The same exponents test μ_i ≤ μ_j + d. With κ = (μ_i + μ_j)/2 in a cell, Ψ is taken at
μ_i = κ + d/2 and μ_j = κ − d/2; it rises with d, so a smaller difference is ruled out
with a larger one (`strategy.bandit.differences`).

Ψ is concave in μ, hence below its tangent in a cell's middle: that bounds its maximum.
What doubles lose by rounding is added to Ψ.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from wallflower.strategy.bandit.cells import (
    ROUNDING,
    Cells,
    Delivered,
    Doubles,
    NoiseBound,
    Places,
    cohort_weights,
    sampling_and_slope,
    unit_cells,
)

# Chosen on six instances outside the tables of docs/results.md, which says them.
DIFFERENCE_WEIGHT = 0.8
TILTS = (0.5, 1.5)  # standard deviations of the two sums together
_TILTED = (1 - DIFFERENCE_WEIGHT) / (2 * len(TILTS))
# Branches of an aim, by their tilt, with their weights.
BRANCHES = {0.0: DIFFERENCE_WEIGHT} | {
    sign * tilt: _TILTED for tilt in TILTS for sign in (1, -1)
}
DIFFERENCE = (0.0,)
OUTERMOST = (max(TILTS), -max(TILTS))  # rule out most cells by themselves

SCALES = np.geomspace(0.35, 1.4, 15)  # of the exponents that suit a Gaussian sum
INSIDE = 0.97  # of the noise's domain
# More would let a lead of two rewards decide in cells that no arm can be shown to be
# in, and leave the tilts no room to rule such cells out.
LARGEST_EXPONENT = 6.0
_CHUNK = 256


@dataclass(frozen=True, eq=False)
class LogPenalty:
    """One arm's part of Ψ in every branch and cell: at the middle, and its slope."""

    value: Doubles
    slope: Doubles


@dataclass(frozen=True, eq=False)
class ExponentPlan:
    """When exponents are to suit best: after some planned cohorts, at a threshold.

    In each cell a cohort's exponent is its weight times `strength`, and a tilt of one
    standard deviation shifts it by its weight times `tilting`. So an aim gives
    exponents for every cohort of the plan, also after the ones it was made for.
    """

    strength: Doubles
    tilting: Doubles

    @classmethod
    def at(cls, plan: Delivered, threshold: float) -> ExponentPlan:
        """Choose what needs the smallest lead at planned sizes.

        The best multiple of what suits a Gaussian sum changes slowly with the mean: it
        is sought at the knots.
        """
        cells = unit_cells()
        weights, spread = cohort_weights(plan, cells.variance)
        tilting = 1 / (math.sqrt(2) * spread)  # of two arms
        gaussian = math.sqrt(2 * threshold) * tilting
        some = cells.at(cells.knots)
        tried = gaussian[cells.knots, None] * weights[cells.knots]
        scales = cells.between(_smallest_lead(plan, tried, threshold, some))
        return cls(scales * gaussian, tilting)


@dataclass(frozen=True, eq=False)
class PairDesign:
    """Exponents of all branches, cells and planned cohorts, and what to exceed.

    Examples
    --------
    >>> noiseless = NoiseBound.of(lambda argument: 0.0)
    >>> design = PairDesign.planned([200], [noiseless], threshold=5.0)
    >>> sides = Delivered(np.array([200.0]), (None,))
    >>> def falls(better: float, worse: float) -> bool:
    ...     sums = np.array([[better]]), np.array([[worse]])
    ...     return bool(design.evidence(sides, sides, *sums)[0] > 5.0)
    >>> falls(9, 1), falls(19, 1), falls(109, 91), falls(130, 70)
    (False, True, False, True)
    """

    leading: Doubles
    trailing: Doubles
    log_weights: Doubles
    threshold: float
    cells: Cells
    shift: Doubles | float = 0.0

    @classmethod
    def planned(
        cls, sizes: Sequence[int], noises: Sequence[NoiseBound], threshold: float
    ) -> PairDesign:
        """Choose exponents that need the smallest lead after the planned cohorts."""
        plan = Delivered(np.array(sizes, dtype=float), tuple(noises))
        return cls.mixed({ExponentPlan.at(plan, threshold): 0.0}, plan, threshold)

    @classmethod
    def mixed(
        cls,
        aims: Mapping[ExponentPlan, float],
        plan: Delivered,
        threshold: float,
        at: Places | None = None,
        branches: Iterable[float] = tuple(BRANCHES),
    ) -> PairDesign:
        """Mix the exponents of several aims, each with the logarithm of its weight.

        They are those of the cohorts of `plan`, of which an aim may know fewer or more;
        in the cells `at`, or in all; of some of the branches, or of all.
        """
        cells = unit_cells() if at is None else unit_cells().at(at)
        weights, _ = cohort_weights(plan, cells.variance)
        most = INSIDE * plan.models.limits
        leading, trailing, log_weights = [], [], []
        for aim, log_weight in aims.items():
            strength, tilting = aim.strength, aim.tilting
            if at is not None:
                strength, tilting = strength[at], tilting[at]
            best = np.minimum(strength[:, None] * weights, LARGEST_EXPONENT)
            best = np.minimum(best, most)
            room = np.minimum(best, np.maximum(most - best, 0.0))
            unit = tilting[:, None] * weights
            for tilt in branches:
                shift = math.copysign(1, tilt) * np.minimum(abs(tilt) * unit, room)
                leading.append(shift + best)
                trailing.append(shift - best)
                log_weights.append(log_weight + math.log(BRANCHES[tilt]))
        exponents = np.array(leading), np.array(trailing)
        return cls(*exponents, np.array(log_weights), threshold, cells)

    def shifted(self, shift: Doubles | float) -> PairDesign:
        """Return the test of μ_i ≤ μ_j + shift; each cell may have a shift of its own.

        Every cell must allow it (`Cells.allowing`).
        """
        return replace(self, cells=self.cells.allowing(shift), shift=shift)

    def means(self, sign: int) -> Doubles:
        """Return where each cell prices the leader (sign 1) or its rival (−1)."""
        return np.clip(self.cells.middle + sign * self.shift / 2, 0.0, 1.0)

    def within(self, places: Places) -> PairDesign:
        """Return the same design of some of its cells; all have one shift."""
        return replace(
            self,
            leading=self.leading[:, places],
            trailing=self.trailing[:, places],
            cells=self.cells.at(places),
        )

    def leader_price(self, side: Delivered, at: Places | None = None) -> LogPenalty:
        """Return what the leader's exponents cost; in the cells `at`, or in all."""
        return _price(self.leading, side, self.means(1), at)

    def rival_price(self, side: Delivered, at: Places | None = None) -> LogPenalty:
        """Return what the rival's exponents cost."""
        return _price(self.trailing, side, self.means(-1), at)

    def compensator(
        self, leader: LogPenalty, rival: LogPenalty, at: Places | None = None
    ) -> Doubles:
        """Ψ_C − ln w of every branch and cell."""
        cells = self.cells if at is None else self.cells.at(at)
        slope = leader.slope + rival.slope
        above, below = cells.high - cells.middle, cells.low - cells.middle
        rise = np.maximum(slope * above, slope * below)
        psi = leader.value + rival.value + rise
        return np.asarray(psi - self.log_weights[:, None])

    def evidence(
        self,
        one: Delivered,
        other: Delivered,
        leading: Doubles,
        trailing: Doubles,
    ) -> Doubles:
        """Evidence that the leading arm is better, in nats, one entry a pair.

        Rows of `leading` and `trailing` are the cohorts' sums in units of reward. Pairs
        that even the likeliest cell does not convince are not looked at further: their
        entry is that cell's, and too small.
        """
        places = likeliest(one, other, leading, trailing)
        found = self.at(places, one, other, leading, trailing)
        convinced = np.flatnonzero(found > self.threshold)
        if len(convinced):
            sums = leading[convinced], trailing[convinced]
            found[convinced] = self.everywhere(one, other, *sums).min(axis=1)
        return found

    def at(
        self,
        places: Places,
        one: Delivered,
        other: Delivered,
        leading: Doubles,
        trailing: Doubles,
    ) -> Doubles:
        """Return the evidence of each pair in one of this design's cells alone."""
        used, where = np.unique(places, return_inverse=True)
        psi = self.compensator(
            self.leader_price(one, used), self.rival_price(other, used), used
        )
        exponents = np.einsum("kpb,pb->kp", self.leading[:, places], leading)
        exponents += np.einsum("kpb,pb->kp", self.trailing[:, places], trailing)
        return log_sum(exponents - psi[:, where])

    def everywhere(
        self,
        one: Delivered,
        other: Delivered,
        leading: Doubles,
        trailing: Doubles,
        prices: tuple[LogPenalty, LogPenalty] | None = None,
    ) -> Doubles:
        """Evidence of each pair (rows) in every cell of this design (columns).

        `prices` are both sides', if they are remembered.
        """
        both = prices or (self.leader_price(one), self.rival_price(other))
        psi = self.compensator(*both)
        found = np.empty((len(leading), len(self.cells.low)))
        for start in range(0, len(leading), _CHUNK):
            rows = slice(start, start + _CHUNK)
            exponents = leading[rows] @ self.leading.transpose(0, 2, 1)
            exponents += trailing[rows] @ self.trailing.transpose(0, 2, 1)
            found[rows] = log_sum(exponents - psi[:, None])
        return found

    def lead_needed(self, side: Delivered) -> float:
        """Return the lead in means at which exact sums convince in the first cell.

        All branches weigh the difference (`DIFFERENCE`).
        """
        psi = self.compensator(self.leader_price(side), self.rival_price(side))
        paid = psi[:, 0]
        per_unit = (self.leading[:, 0] * side.users).sum(axis=1)
        low, high = 0.0, float(((self.threshold + paid) / per_unit).min())
        while high - low > 1e-6 * high:
            middle = (low + high) / 2
            enough = log_sum(middle * per_unit - paid) > self.threshold
            low, high = (low, middle) if enough else (middle, high)
        return high


def likeliest(
    one: Delivered, other: Delivered, leading: Doubles, trailing: Doubles
) -> Places:
    """Return the cell of each pair's common mean, among all cells."""
    users = max(float(one.users.sum() + other.users.sum()), 1.0)
    means = (leading.sum(axis=1) + trailing.sum(axis=1)) / users
    return unit_cells().containing(means)


def _price(
    exponents: Doubles, side: Delivered, means: Doubles, at: Places | None
) -> LogPenalty:
    if at is not None:
        exponents, means = exponents[:, at], means[at]
    means = np.broadcast_to(means, exponents.shape[:2])
    value, slope = sampling_and_slope(side.users, exponents, means)
    return LogPenalty(value + noise_and_rounding(exponents, side), slope)


def noise_and_rounding(exponents: Doubles, side: Delivered) -> Doubles:
    """Return the part of an arm's price that its mean does not change."""
    noise = side.noise(exponents)
    return noise + ROUNDING * (1 + noise + np.abs(exponents) @ side.users)


def _smallest_lead(
    plan: Delivered, gaussian: Doubles, threshold: float, cells: Cells
) -> Doubles:
    """Return each cell's scale, among a few, that needs the smallest lead."""
    most = np.minimum(INSIDE * plan.models.limits, LARGEST_EXPONENT)
    exponents = np.minimum(SCALES[:, None, None] * gaussian, most)
    # (1 + μ(eᵃ − 1))(1 + μ(e⁻ᵃ − 1)) = 1 + 4μ(1 − μ) sinh²(a/2)
    both = np.log1p(4 * cells.variance[:, None] * np.sinh(exponents / 2) ** 2)
    price = both @ plan.users + 2 * plan.noise(exponents) + threshold
    lead = price / (exponents @ plan.users)
    return np.asarray(SCALES[lead.argmin(axis=0)])


def log_sum(exponents: Doubles) -> Doubles:
    """ln Σ exp over the first axis; −∞ where every term is 0."""
    largest = np.maximum(exponents.max(axis=0), np.finfo(np.float64).min)
    total = np.exp(exponents - largest).sum(axis=0)
    with np.errstate(divide="ignore"):
        return np.asarray(largest + np.log(total))
