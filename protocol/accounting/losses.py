"""Privacy losses as a law of their own, and what many cohorts add up to.

The loss of an outcome x is ln f(x)/f(x − g), with x drawn from f. Losses of cohorts add
up, so the law of the total is a convolution, and δ(ε) = E[max(0, 1 − e^{ε − loss})].

A loss between two points of a grid is split between them such that the masses under f
and under its shift both stay: merging the two outcomes gives the old one back, so the
split pair dominates (Doroshenko, Ghazi, Kamath, Kumar and Manurangsi 2022). Masses are
upper bounds; what lies in the far left tail counts as an infinite loss. Of different
cohorts the largest of all P[loss > t] is taken for every t: that law dominates each of
them, also in an order that depends on results (Zhu, Dong and Wang 2022, Thm 10).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from wallflower.protocol.accounting.log_masses import Reals

# The grid's step, as a part of the smallest standard deviation of a loss. A split adds
# h²/6 to a variance on average: about 10⁻⁵ of the ε that follows.
_STEPS_A_DEVIATION = 100
_LONGEST_GRID = 2**23
_NEGLIGIBLE = 1e-9
_UNIT = 2.0**-53


@dataclass(frozen=True, slots=True, eq=False)
class Losses:
    """Losses in falling order, upper bounds on their masses, and the infinite rest."""

    values: Reals
    masses: Reals
    infinite: float

    def probabilistic(self, privacy_delta: float) -> float:
        """Return the smallest ε with P[loss > ε] ≤ δ.

        This is about who sees the sum itself: unlike (ε, δ)-DP it need not hold for
        what is computed from it.
        """
        larger = self.infinite + np.concatenate(([0.0], np.cumsum(self.masses)[:-1]))
        larger *= 1 + len(larger) * _UNIT
        if larger[0] > privacy_delta:
            return math.inf
        place = int(np.searchsorted(larger, privacy_delta, side="right")) - 1
        return max(0.0, float(self.values[place]))

    def deviation(self) -> float:
        """Return the standard deviation of the finite losses."""
        mean = float(self.values @ self.masses)
        return math.sqrt(float((self.values - mean) ** 2 @ self.masses))


def randomized_response(epsilon: float) -> Losses:
    """Losses that dominate those of every (ε, 0)-DP mechanism.

    Kairouz, Oh and Viswanath 2015.
    """
    truth = 1 / (1 + math.exp(-epsilon))
    masses = np.array([truth, 1 - truth]) * (1 + 4 * _UNIT)
    return Losses(np.array([epsilon, -epsilon]), masses, 0.0)


def composed_epsilon(
    cohorts: Sequence[Losses], participations: int, privacy_delta: float
) -> float:
    """Return ε at δ for `participations` cohorts, each any one of `cohorts`.

    Infinite where the grid would be too long to be worth it or rounding too coarse.
    """
    step = min(losses.deviation() for losses in cohorts) / _STEPS_A_DEVIATION
    largest = max(float(losses.values.max()) for losses in cohorts)
    step = largest / math.ceil(largest / step)  # pure losses, all ±ε, need no split
    lowest = min(math.floor(losses.values.min() / step) for losses in cohorts)
    highest = math.floor(largest / step) + 1
    length = participations * (highest - lowest) + 1
    if length > _LONGEST_GRID:
        return math.inf
    grids = [_on_grid(losses, step, lowest, highest) for losses in cohorts]
    infinite = max(losses.infinite for losses in cohorts)
    # From the top: P[loss ≥ t], whose largest dominates all.
    tails = np.max([np.cumsum(grid[::-1]) for grid in grids], axis=0)
    tails *= 1 + len(tails) * _UNIT
    single = np.diff(tails, prepend=0.0)[::-1]
    total, error = _power(single, participations, length)
    lost = participations * infinite * float(tails[-1]) ** (participations - 1) + error
    values = step * (participations * lowest + np.arange(length))
    return _epsilon(values, total, privacy_delta - lost)


def _on_grid(losses: Losses, step: float, lowest: int, highest: int) -> Reals:
    """Split every loss l between the points a ≤ l ≤ b = a + h beside it.

    The part w of its mass that goes to b keeps the mass under the shifted law:
    w e^{−b} + (1 − w) e^{−a} = e^{−l}, w = (1 − e^{a−l})/(1 − e^{−h}).
    """
    cells = np.floor(losses.values / step).astype(np.int64)
    inside = losses.values - cells * step
    upper = np.expm1(-inside) / math.expm1(-step)
    # The error of `inside` is that of the loss itself; more mass above is safe.
    slack = 8 * _UNIT * (np.abs(losses.values) / step + 1)
    upper = np.clip(upper + slack, 0.0, 1.0)
    size = highest - lowest + 1
    grid = np.bincount(cells - lowest, losses.masses * (1 - upper), size)
    grid += np.bincount(cells - lowest + 1, losses.masses * upper, size)
    return np.asarray(grid * (1 + len(cells) * _UNIT))


def _power(single: Reals, participations: int, length: int) -> tuple[Reals, float]:
    """Convolve a law with itself; also bound the error of any sum of the result.

    A transform of size N errs by at most 8 log₂N units in the 2-norm, relative
    (Higham 2002, Thm 24.2). |F| ≤ M, the total mass, so the power multiplies it by
    B·M^{B−1}, and Parseval carries it back; a sum over N entries with weights in
    [0, 1] is at most √N times the 2-norm.
    """
    size = 1 << (length - 1).bit_length()
    spectrum = np.fft.rfft(single, size) ** participations
    total = np.fft.irfft(spectrum, size)[:length]
    relative = 8 * math.log2(size) * _UNIT
    mass = float(single.sum()) ** (participations - 1)
    norm = float(np.linalg.norm(single))
    error = math.sqrt(size) * norm * mass * (2 * participations + 1) * relative
    return np.maximum(total, 0.0), error


def _epsilon(values: Reals, masses: Reals, privacy_delta: float) -> float:
    """Solve E[max(0, 1 − e^{ε − loss})] ≤ δ by bisection; the upper end is given."""
    if privacy_delta <= 0:
        return math.inf
    # What is negligible beside δ counts in full and is not looked at again.
    beyond = np.cumsum(masses[::-1])[::-1]
    kept = (values > 0) & (beyond > _NEGLIGIBLE * privacy_delta)
    values, masses = values[kept], masses[kept]
    privacy_delta *= 1 - 2 * _NEGLIGIBLE

    def is_exceeded(epsilon: float) -> bool:
        first = int(np.searchsorted(values, epsilon))
        terms = -np.expm1(epsilon - values[first:]) * masses[first:]
        return float(terms.sum()) * (1 + 1e-12) > privacy_delta

    low, high = 0.0, float(values[-1]) if len(values) else 0.0
    if not is_exceeded(low):
        return low
    while high - low > 1e-7 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if is_exceeded(middle) else (low, middle)
    return high
