"""Cells of the common mean, and what rewards and noise pay for an exponent.

[0, 1] is cut into cells, fine near both ends, so that a test may use other exponents
for a mean of 0.01 than for one of ½ (see `strategy.bandit.pair_test`).

The noise is bounded by chords of its log-MGF, which are fast on arrays. A log-MGF is
convex, so a chord lies above it between its ends. Interpolating a few exact values
gives a bound that is valid everywhere, and at most 0.3 % too large where the function
is about quadratic.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from wallflower.strategy.bandit.radius import LogMgf

Doubles = NDArray[np.float64]
Places = NDArray[np.intp]

_CELL_RATIO = 1.02
_SMALLEST_MEAN = 1e-9
_BETWEEN_KNOTS = 16
# Nothing here is further from the truth than this part of Σ n|a|: every term of every
# sum is at most n|a| in size, and fewer than fifty roundings of 2⁻⁵³ meet each.
ROUNDING = 1e-14
# No closed log-MGF cancels; the interpolation of its values is rounded by less.
_NOISE_ROUNDING = 1e-9
# Exponents beyond this never help: one reward would move the odds by e⁶⁰.
_LARGEST_ARGUMENT = 60.0
_SMALLEST_PART = 1e-8  # of the largest argument
_KNOTS = 200


@dataclass(frozen=True, eq=False)
class Cells:
    """A partition of [0, 1], fine near both ends, with a middle for each cell."""

    low: Doubles
    high: Doubles

    @cached_property
    def middle(self) -> Doubles:
        """A point of each cell; geometric, so that it has the cell's variance."""
        low, high = np.maximum(self.low, 1e-12), np.minimum(self.high, 1 - 1e-12)
        below, above = np.sqrt(low * high), 1 - np.sqrt((1 - low) * (1 - high))
        return np.asarray(np.where(high <= 0.5, below, above))

    @cached_property
    def variance(self) -> Doubles:
        """Variance of a coin with the middle as its mean."""
        return np.asarray(self.middle * (1 - self.middle))

    @cached_property
    def widest(self) -> Doubles:
        """The largest difference of two means in [0, 1] whose middle is in a cell."""
        return np.asarray(2 * np.minimum(self.high, 1 - self.low))

    @cached_property
    def knots(self) -> Places:
        """Every sixteenth cell: where to seek what changes slowly with the mean."""
        return np.arange(_BETWEEN_KNOTS // 2, len(self.low), _BETWEEN_KNOTS)

    def between(self, at_knots: Doubles) -> Doubles:
        """Interpolate what was found at the knots to every cell."""
        return np.interp(np.arange(len(self.low)), self.knots, at_knots)

    def at(self, places: Places) -> Cells:
        """Return some of the cells."""
        return Cells(self.low[places], self.high[places])

    def allowing(self, shift: Doubles | float) -> Cells:
        """Return the part of each cell where middle ± shift/2 are both in [0, 1].

        Where there is none, low lies above high.
        """
        most = np.abs(shift) / 2
        return Cells(np.maximum(self.low, most), np.minimum(self.high, 1 - most))

    def containing(self, means: Doubles) -> Places:
        """Index of the cell of each mean; what lies outside [0, 1] is clipped."""
        found = np.searchsorted(self.high, np.clip(means, 0.0, 1.0), side="left")
        return np.minimum(found, len(self.high) - 1)


@lru_cache(maxsize=1)
def unit_cells() -> Cells:
    """Return cells whose ends grow by 2 % from 10⁻⁹ to ½, and the same from 1 down."""
    count = math.ceil(math.log(0.5 / _SMALLEST_MEAN) / math.log(_CELL_RATIO)) + 1
    rising = np.geomspace(_SMALLEST_MEAN, 0.5, count)
    edges = np.concatenate([[0.0], rising, 1 - rising[:-1][::-1], [1.0]])
    return Cells(edges[:-1], edges[1:])


@dataclass(frozen=True, eq=False)
class NoiseBound:
    """Chords of a symmetric log-MGF on [0, limit]; infinite beyond.

    `limit` lies inside the domain, so that every chord is finite. `noises` counts the
    independent noises whose sum it bounds.
    """

    arguments: Doubles
    values: Doubles
    noises: int = 1

    @classmethod
    def of(cls, log_mgf: LogMgf) -> NoiseBound:
        """Evaluate a log-MGF at the knots."""
        limit = _inside_domain(log_mgf)
        knots = np.geomspace(_SMALLEST_PART * limit, limit, _KNOTS)
        values = [log_mgf(float(knot)) for knot in knots]
        return cls(np.array([0.0, *knots]), np.array([0.0, *values]))

    @classmethod
    def of_sum(cls, parts: Sequence[tuple[NoiseBound, int]]) -> NoiseBound:
        """Bound the sum of independent noises, each kind as often as is said.

        Chords are convex too, so those between the knots of the kind with the smallest
        limit lie above all of them.
        """
        narrowest = min((bound for bound, _ in parts), key=lambda bound: bound.limit)
        if len(parts) == 1 and parts[0][1] == 1:
            return narrowest
        knots = narrowest.arguments
        total = sum((count * bound(knots) for bound, count in parts), 0 * knots)
        return cls(knots, total, sum(bound.noises * count for bound, count in parts))

    @property
    def limit(self) -> float:
        """Largest argument with a finite bound."""
        return float(self.arguments[-1])

    @property
    def variance(self) -> float:
        """Twice the curvature at 0: what small exponents pay."""
        middle = len(self.arguments) // 2
        return float(2 * self.values[middle] / self.arguments[middle] ** 2)

    def __call__(self, arguments: Doubles) -> Doubles:
        """Bound the log-MGF at each argument, of either sign."""
        return np.interp(np.abs(arguments), self.arguments, self.values, right=math.inf)


def _inside_domain(log_mgf: LogMgf) -> float:
    """Return an argument near the end of the domain where the log-MGF is finite."""
    if math.isfinite(log_mgf(_LARGEST_ARGUMENT)):
        return _LARGEST_ARGUMENT
    low, high = 0.0, _LARGEST_ARGUMENT
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if math.isfinite(log_mgf(middle)) else (low, middle)
    return 0.98 * low


@dataclass(frozen=True, eq=False)
class Delivered:
    """Per group of planned cohorts: users behind its sums, and a bound of its noise.

    Where nothing was delivered there are 0 users and no noise. `first` has the first
    cohort of every group alone, where a plan's groups have several.
    """

    users: Doubles
    noises: tuple[NoiseBound | None, ...]
    first: Delivered | None = None

    @property
    def models(self) -> Delivered:
        """One cohort of every group: what its exponents follow from."""
        return self if self.first is None else self.first

    @property
    def noise_variances(self) -> Doubles:
        """Variance of every group's noise."""
        return np.array([0.0 if n is None else n.variance for n in self.noises])

    @property
    def limits(self) -> Doubles:
        """Largest exponent with a finite bound, of every group."""
        bounds = (math.inf if n is None else n.limit for n in self.noises)
        return np.array(list(bounds))

    def noise(self, exponents: Doubles) -> Doubles:
        """Bound Σ ln M; the last axis of `exponents` runs over the groups."""
        total = np.zeros(exponents.shape[:-1])
        for position, bound in enumerate(self.noises):
            if bound is not None:
                rounding = bound.noises * _NOISE_ROUNDING
                total += bound(exponents[..., position]) + rounding
        return total


def sampling(users: Doubles, exponents: Doubles, means: Doubles) -> Doubles:
    """Σ n ln(1 + μ(eᵃ − 1)), one mean for each row of `exponents`."""
    return sampling_and_slope(users, exponents, means)[0]


def sampling_and_slope(
    users: Doubles, exponents: Doubles, means: Doubles
) -> tuple[Doubles, Doubles]:
    """Return `sampling` and its derivative by the mean.

    ln(1 + μ(eᵃ − 1)) = a + ln(1 + (1 − μ)(e⁻ᵃ − 1)), and 1 − μ is exact for doubles
    μ ≥ ½: seen from the nearer end nothing cancels, however near to it μ is.
    """
    far = means >= 0.5
    sign, nearer = np.where(far, -1.0, 1.0), np.where(far, 1 - means, means)
    grown = np.expm1(sign[..., None] * exponents)
    moved = nearer[..., None] * grown
    value = np.log1p(moved) @ users + np.where(far, exponents @ users, 0.0)
    return np.asarray(value), np.asarray(sign * ((grown / (1 + moved)) @ users))


def cohort_weights(plan: Delivered, variance: Doubles) -> tuple[Doubles, Doubles]:
    """How much each cohort counts in each cell, and one arm's standard deviation.

    Noise of a small cohort drowns its rewards; the best linear weight is the part of
    the variance that comes from the rewards. It is that of a group's first cohort, so
    that it stays what it is while the group fills.
    """
    models = plan.models
    sampled = variance[:, None] * models.users
    weights = sampled / (sampled + models.noise_variances)
    return weights, np.sqrt(variance * (weights @ plan.users))
