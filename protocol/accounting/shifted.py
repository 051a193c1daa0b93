"""Divergences between a noise law and its own shift, summed on ℤ with bounded tails.

Replacing one reward moves the sum by an integer of at most g, so every guarantee is a
divergence between the law of the total noise and the same law shifted by g. For the
unimodal laws here smaller shifts give smaller divergences (monotone likelihood ratio),
and a random shift is a mixture, which gives no more than the worst (joint convexity).

Each result is a pair of bounds: summation within reach, rounding and the mass error of
`LogMasses` included, plus a proven bound on all that lies beyond.
"""

from __future__ import annotations

import abc
import functools
import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from wallflower.protocol.accounting.log_masses import LONGEST, LogMasses, Reals, log_sum
from wallflower.protocol.accounting.losses import Losses
from wallflower.protocol.errors import InputError
from wallflower.protocol.noise.law import NoiseLaw

# Rounding of one exponent α·a − (α−1)·b, relative to the size of its parts, and of the
# exponential and the pairwise sum.
_EXPONENT_ERROR = 4 * 2.0**-53
_SUM_ERROR = 64 * 2.0**-53
_NEGLIGIBLE = -55.0


@dataclass(frozen=True, slots=True)
class Bounds:
    """A number known to lie between two doubles."""

    lower: float
    upper: float


@dataclass(frozen=True, slots=True, eq=False)
class _HalfLines:
    """P(X ≤ c) and P(X + shift ≤ c) within the cut, bounded from both sides."""

    here_most: Reals
    here_least: Reals
    there_most: Reals
    there_least: Reals
    far: float


def _cumulate(logarithms: Reals) -> Reals:
    extended = np.cumsum(np.exp(logarithms).astype(np.longdouble))
    return extended.astype(np.float64)


class ShiftedNoise(abc.ABC):
    """A symmetric, log-concave law on ℤ and the shift that one reward causes."""

    def __init__(self, shift: int) -> None:
        if shift < 1:
            raise InputError("shift", shift, "at least 1")
        self.shift = shift
        self._masses: LogMasses | None = None
        self._sums: _HalfLines | None = None
        self._reaches: dict[float, int] = {}

    @abc.abstractmethod
    def build(self, reach: int) -> LogMasses:
        """ln P(X = k) for k = 0 … reach."""

    @abc.abstractmethod
    def log_far_mass(self, beyond: int) -> float:
        """Upper bound on ln P(X > beyond)."""

    @abc.abstractmethod
    def log_far_terms(self, order: float, beyond: int) -> float:
        """Upper bound on ln Σ_{v > beyond} f(v)^α f(v + shift)^{1−α}."""

    @abc.abstractmethod
    def pure(self) -> float:
        """sup_x |ln f(x)/f(x − shift)|, the exact ε of (ε, 0)-DP; may be infinite."""

    def reach(self, order: float) -> int:
        """A cut beyond which the terms of this order are negligible (≤ e^{−55})."""
        if order not in self._reaches:
            self._reaches[order] = self._find_reach(order)
        return self._reaches[order]

    def _find_reach(self, order: float) -> int:
        def negligible(cut: int) -> bool:
            return (
                self.log_far_mass(cut) <= _NEGLIGIBLE
                and self.log_far_terms(order, cut) <= _NEGLIGIBLE
            )

        high = 64
        while not negligible(high):
            high *= 2
        low = high // 2
        while high - low > high // 16:
            middle = (low + high) // 2
            low, high = (low, middle) if negligible(middle) else (middle, high)
        return high

    def within_reach(self, order: float) -> bool:
        """Return whether the sum of this order is short enough to be worth taking."""
        return self.reach(order) + self.shift <= LONGEST

    def masses(self, reach: int) -> LogMasses:
        """Log-masses up to `reach` at least; the longest ones are remembered."""
        if self._masses is None or self._masses.reach < reach:
            self._masses = self.build(reach)
        return self._masses

    def renyi(self, order: float) -> Bounds:
        """D_α(X ‖ X + shift) for a real order α > 1."""
        check_order(order)
        cut = self.reach(order)
        points = np.arange(-cut, cut + 1)
        masses = self.masses(cut + self.shift)
        here, here_error = masses.at(points)
        there, there_error = masses.at(points - self.shift)
        exponents = order * here - (order - 1) * there
        slack = order * here_error + (order - 1) * there_error
        size = order * np.abs(here) + (order - 1) * np.abs(there)
        slack = slack + _EXPONENT_ERROR * size
        lower = log_sum(exponents - slack) - _SUM_ERROR
        # Right of the cut f(x) ≤ f(x − shift), so a term is at most f(x).
        far = np.logaddexp(self.log_far_mass(cut), self.log_far_terms(order, cut))
        upper = float(np.logaddexp(log_sum(exponents + slack), far)) + _SUM_ERROR
        return Bounds(max(0.0, lower / (order - 1)), max(0.0, upper / (order - 1)))

    def hockey_stick(self, epsilon: float) -> Bounds:
        """δ(ε) = Σ_x max(0, f(x) − e^ε f(x − shift)): the exact (ε, δ) trade-off.

        The law is log-concave, so f(x)/f(x − shift) falls with x and the sum runs over
        a half-line: it is the largest of all P(X ≤ c) − e^ε P(X + shift ≤ c).
        """
        sums = self._half_lines()
        weight = math.exp(epsilon)
        # Left of the cut at most all of f is missing, right of it nothing is gained.
        most = float((sums.here_most - weight * sums.there_least).max())
        least = float((sums.here_least - weight * sums.there_most).max())
        return Bounds(max(0.0, least), min(1.0, max(0.0, most) + sums.far))

    def _half_lines(self) -> _HalfLines:
        if self._sums is None:
            cut = self.reach(1.0)
            points = np.arange(-cut, cut + 1)
            masses = self.masses(cut + self.shift)
            here, here_error = masses.at(points)
            there, there_error = masses.at(points - self.shift)
            here_error = here_error + _EXPONENT_ERROR * (1 + np.abs(here))
            there_error = there_error + _EXPONENT_ERROR * (1 + np.abs(there))
            # Cumulated in extended precision, whose rounding is far below the errors.
            self._sums = _HalfLines(
                _cumulate(here + here_error),
                _cumulate(here - here_error),
                _cumulate(there + there_error),
                _cumulate(there - there_error),
                math.exp(self.log_far_mass(cut)),
            )
        return self._sums

    def lists_losses(self) -> bool:
        """Return whether the law of the loss is short enough to be worth listing."""
        return self.reach(1.0) + self.shift <= LONGEST

    def losses(self) -> Losses:
        """Return the law of the privacy loss ln f(x)/f(x − shift), bounded from above.

        It falls with x. Left of the cut it counts as infinite, right of it as large as
        at the cut. A smaller shift gives smaller losses on a smaller left half-line,
        and rounding at random keeps the ratio of the two laws monotone, so this bounds
        the losses between any two rewards.
        """
        cut = self.reach(1.0)
        points = np.arange(-cut, cut + 1)
        masses = self.masses(cut + self.shift)
        here, here_error = masses.at(points)
        there, there_error = masses.at(points - self.shift)
        rounding = _EXPONENT_ERROR * (1 + np.abs(here) + np.abs(there))
        values = here - there + here_error + there_error + rounding
        # The true ones fall: what bounds one bounds all that follow.
        values = np.minimum.accumulate(np.minimum(values, self.pure() * (1 + 2**-51)))
        weights = np.exp(here + here_error + rounding)
        far = math.exp(self.log_far_mass(cut))
        weights[-1] += far
        return Losses(values, weights, far)

    def approximate(self, privacy_delta: float) -> float:
        """Smallest ε with δ(ε) ≤ privacy_delta, by bisection; the upper end is given.

        Infinite where the bound on the far tail alone exceeds privacy_delta.
        """
        highest = 1.0
        while self.hockey_stick(highest).upper > privacy_delta:
            highest *= 2
            if highest > 1000:
                return math.inf
        lowest = 0.0
        if self.hockey_stick(lowest).upper <= privacy_delta:
            return lowest
        while highest - lowest > 1e-7 * highest:
            middle = (lowest + highest) / 2
            if self.hockey_stick(middle).upper <= privacy_delta:
                highest = middle
            else:
                lowest = middle
        return highest


def check_order(order: float) -> None:
    """Refuse an order that is not a finite number above 1."""
    if not 1 < order < math.inf:
        raise InputError("order", order, "a finite number greater than 1")


@functools.singledispatch
def shifted(law: NoiseLaw, shift: int) -> ShiftedNoise:
    """Pair a noise law with a shift; the registered laws are those we account for."""
    raise InputError(
        "noise law", type(law).__name__, "one that protocol.accounting knows"
    )


# --- Views that tell a little more than the sum.
#
# A view may weigh inputs of equal sum by up to e^η, as a shuffled batch does. Let M_s
# and m_s be the largest and smallest likelihood of an event over inputs of sum s, so
# that M_s ≤ e^η m_s. Then:
#
# - (ε, δ) of the sum is (ε + η, δ) of the view: Σ P(s) M_s ≤ e^ε Σ P′(s) M_s + δ;
# - D_α of the view is at most D_α of the sum plus αη/(α − 1). This follows from
#   P ≤ e^η Σ P(s) m_s and P′ ≥ Σ P′(s) m_s: m is a sub-stochastic kernel.


class Seen:
    """The divergences of a sum, as far as a view can widen them."""

    def __init__(self, of_sum: ShiftedNoise, view_loss: Fraction) -> None:
        self._of_sum = of_sum
        self._loss = float(view_loss)

    def within_reach(self, order: float) -> bool:
        """Return whether the sum of this order is short enough to be worth taking."""
        return self._of_sum.within_reach(order)

    def pure(self) -> float:
        """ε of (ε, 0)-DP."""
        return self._of_sum.pure() + self._loss

    def approximate(self, privacy_delta: float) -> float:
        """Return the smallest known ε of (ε, δ)-DP."""
        return self._of_sum.approximate(privacy_delta) + self._loss

    def renyi(self, order: float) -> Bounds:
        """D_α: between nothing and the most that a view can tell."""
        most = self._of_sum.renyi(order).upper + order * self._loss / (order - 1)
        return Bounds(0.0, most)

    def lists_losses(self) -> bool:
        """Return False: the law of a view's loss depends on more than the sum's."""
        return False

    def losses(self) -> Losses:
        """Refuse; see `lists_losses`."""
        raise InputError("losses", "of a view", "of a sum only")
