"""Logarithms of a symmetric law's masses, far into the tail, with their error.

Samplers need masses down to 2⁻⁷²; Rényi divergences of high order need e^{−10000}. The
laws here have the smallest solution of a three-term recurrence as their mass function,
so the ratios r_k = P(X = k)/P(X = k−1) follow a continued fraction that is stable when
run downwards (Gautschi 1967). Each step carries a bound on its relative error along.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Reals = NDArray[np.float64]

_UNIT = 2.0**-53
# A step has at most four rounded operations and two rounded constants.
_STEP_ERROR = 8 * _UNIT
# Longest recurrence that is worth running: a fraction of a second. Beyond it g is so
# large that the closed forms are as good to five digits.
LONGEST = 300_000


@dataclass(frozen=True, slots=True, eq=False)
class LogMasses:
    """ln P(X = k) for k = 0 … reach, each within `error[k]` of the truth."""

    values: Reals
    error: Reals

    @property
    def reach(self) -> int:
        """The last k."""
        return len(self.values) - 1

    def up_to(self, reach: int) -> LogMasses:
        """Return the masses of 0 … reach only."""
        return LogMasses(self.values[: reach + 1], self.error[: reach + 1])

    def at(self, points: NDArray[np.int64]) -> tuple[Reals, Reals]:
        """Return values and errors at integers of either sign, |x| ≤ reach."""
        index = np.abs(points)
        return self.values[index], self.error[index]


@dataclass(frozen=True, slots=True)
class Ratio:
    """A mass ratio and a bound on its relative error."""

    value: float
    error: float


# Gives r_k from r_{k+1}: (k, r_{k+1}) → (r_k, ∂ln r_k/∂ln r_{k+1}).
RatioStep = Callable[[int, float], tuple[float, float]]


def masses_by_ratios(
    log_at_zero: float, first_error: float, start: Ratio, step: RatioStep, reach: int
) -> LogMasses:
    """Run the ratios down from r_{reach+1} = `start` and add up their logarithms.

    The sum is taken in extended precision; its rounding is part of the error, as is
    the logarithm's half unit.
    """
    ratios = np.empty(reach + 1)
    errors = np.empty(reach + 1)
    ratio, error = start.value, start.error
    ratios[0], errors[0] = 1.0, 0.0
    for k in range(reach, 0, -1):
        ratio, influence = step(k, ratio)
        error = abs(influence) * error + _STEP_ERROR
        ratios[k] = ratio
        errors[k] = error
    logarithms = np.log(ratios).astype(np.longdouble)
    logarithms[0] = log_at_zero
    values = np.cumsum(logarithms)
    extended = float(np.finfo(np.longdouble).eps)
    # np.log is within one unit in the last place; ratios near one lose nothing else.
    rounding = (
        np.abs(np.log(ratios)) * 2 * _UNIT + np.abs(values).astype(float) * extended
    )
    rounding[0] = first_error
    error_sums = np.cumsum(errors + rounding) * (1 + 1e-9)
    final = values.astype(np.float64)
    return LogMasses(final, error_sums + np.abs(final) * _UNIT)


def chernoff(log_mgf: Callable[[float], float], beyond: int, largest: float) -> float:
    """Bound ln P(X > beyond) by min over λ of ln M(λ) − λ(beyond + 1).

    Any λ in (0, largest) is valid; a grid finds a good one.
    """
    best = 0.0
    for k in range(1, 33):
        argument = largest * k / 33
        best = min(best, log_mgf(argument) - argument * (beyond + 1))
    return best


def log_sum(exponents: Reals) -> float:
    """ln Σ exp(exponents), without overflow."""
    top = float(exponents.max())
    if top == -math.inf:
        return -math.inf
    return top + math.log(float(np.exp(exponents - top).sum()))
