"""Divergences of discrete Laplace noise and of any number of its parts."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from flint import arb

from wallflower.protocol.accounting.log_masses import (
    LogMasses,
    Ratio,
    chernoff,
    masses_by_ratios,
)
from wallflower.protocol.accounting.shifted import (
    Bounds,
    ShiftedNoise,
    check_order,
    shifted,
)
from wallflower.protocol.errors import InputError
from wallflower.protocol.noise.balls import Ball, ball, precision
from wallflower.protocol.noise.difference import NegativeBinomialDifference
from wallflower.protocol.noise.laplace import DiscreteLaplace
from wallflower.protocol.noise.law import NoiseLaw


class ShiftedLaplaceParts(ShiftedNoise):
    """Difference of two Pólya(R, e^{−a}) variables; R = 1 is Lap_ℤ(1/a).

    Its generating function ((1−q)²/((1−qz)(1−q/z)))^R, q = e^{−a}, obeys a first-order
    differential equation, hence q(k+1−R)f(k+1) = (1+q²)k f(k) − q(k−1+R)f(k−1).
    """

    def __init__(
        self, law: NoiseLaw, shape: Fraction, rate: Fraction, shift: int
    ) -> None:
        super().__init__(shift)
        self._law = law
        self._shape = shape
        self._rate = rate

    def build(self, reach: int) -> LogMasses:
        """Ratios downwards from the closed form at the far end."""
        shape, base = float(self._shape), math.exp(-float(self._rate))
        square = base * base

        def step(k: int, above: float) -> tuple[float, float]:
            minus = base * (k + 1 - shape) * above
            ratio = base * (k - 1 + shape) / ((1 + square) * k - minus)
            return ratio, minus / ((1 + square) * k - minus)

        start = Ratio(math.exp(self.log_ratio(reach + 1, reach)), 2.0**-40)
        log_at_zero = float(self.log_mass(0).mid())
        return masses_by_ratios(
            log_at_zero, abs(log_at_zero) * 2.0**-50, start, step, reach
        )

    def log_mass(self, at: int, digits: int = 256) -> Ball:
        """ln f(k) = ln[(1−q)^{2R} q^k (R)_k/k! ₂F₁(R, R+k; 1+k; q²)], k ≥ 0."""
        with precision(digits):
            shape, base = ball(self._shape), (-ball(self._rate)).exp()
            series = (base * base).hypgeom_2f1(shape, shape + at, arb(1 + at))
            rising = (shape + at).lgamma() - shape.lgamma() - arb(at + 1).lgamma()
            value = 2 * shape * (1 - base).log() - at * ball(self._rate)
            return value + rising + series.log()

    def log_ratio(self, above: int, below: int) -> float:
        """ln f(above)/f(below); the double lies at or above the true value."""
        for digits in (256, 1024, 4096, 16384):
            with precision(digits):
                ratio = self.log_mass(above, digits) - self.log_mass(below, digits)
                if ratio.rel_accuracy_bits() > 60:
                    return math.nextafter(float(ratio.upper()), math.inf)
        raise ArithmeticError("the ratio of two masses was not tight enough")

    def hockey_stick(self, epsilon: float) -> Bounds:
        """As for every log-concave law, which this is for R ≥ 1."""
        if self._shape < 1:
            allowed = "at least 1; fewer parts promise only their effective ε"
            raise InputError("shape", self._shape, allowed)
        return super().hockey_stick(epsilon)

    def log_far_mass(self, beyond: int) -> float:
        """Chernoff with the closed-form MGF, whose domain ends at the rate."""
        return chernoff(self._law.log_mgf, beyond, float(self._rate))

    def log_far_terms(self, order: float, beyond: int) -> float:
        """Every ratio is at most e^{pure}."""
        return (order - 1) * self.pure() + self.log_far_mass(beyond)

    def pure(self) -> float:
        """ε of the law: a·shift for R ≥ 1, else ln f(0)/f(shift).

        For R ≥ 1 the law is log-concave and the ratio of neighbours falls towards q
        from above, so the supremum a·shift is reached (R = 1) or approached in the
        tail. For R < 1 the ratio rises towards q: the worst place is the centre.
        """
        if self._shape >= 1:
            return float(self._rate * self.shift)
        return self.log_ratio(0, self.shift)


class ShiftedLaplace(ShiftedLaplaceParts):
    """Lap_ℤ(1/a), one whole noise, where every sum is geometric."""

    def __init__(self, law: DiscreteLaplace, shift: int) -> None:
        super().__init__(law, Fraction(1), 1 / law.scale, shift)

    def within_reach(self, order: float) -> bool:
        """Always: nothing is summed."""
        return True

    def build(self, reach: int) -> LogMasses:
        """ln[(1−q)/(1+q)] − a·k."""
        rate = float(self._rate)
        first = math.log(math.tanh(rate / 2))
        values = first - rate * np.arange(reach + 1, dtype=np.float64)
        return LogMasses(values, 8 * 2.0**-53 * (1 + abs(first) + np.abs(values)))

    def renyi(self, order: float) -> Bounds:
        """Three geometric series: left of 0, between 0 and shift, right of shift.

        (α−1)D_α = ln[(1−q)/(1+q) · (e^{(α−1)ε}(1/(1−q) + w(1−w^{Δ−1})/(1−w))
        + e^{−αε}/(1−q))], q = e^{−a}, w = q^{2α−1}, ε = aΔ; e^{(α−1)ε} is taken out.
        """
        check_order(order)
        rate, shift = float(self._rate), self.shift
        epsilon, middle = rate * shift, (2 * order - 1) * rate
        gap = -math.expm1(-rate)
        inner = 1 / gap + math.exp(-(2 * order - 1) * epsilon) / gap
        inner += (
            math.exp(-middle) * math.expm1(-middle * (shift - 1)) / math.expm1(-middle)
        )
        value = epsilon + math.log(inner * gap / (1 + math.exp(-rate))) / (order - 1)
        # Every operation above is within a few units in the last place.
        slack = 64 * 2.0**-53 * (1 + 1 / (order - 1))
        return Bounds(max(0.0, value - slack), min(epsilon, value + slack))

    def hockey_stick(self, epsilon: float) -> Bounds:
        """P(X ≤ c) − e^ε P(X ≤ c − shift) at the best c, where the ratio passes e^ε."""
        rate, shift = float(self._rate), self.shift
        if epsilon >= rate * shift:
            return Bounds(0.0, 0.0)
        best = math.floor((shift - epsilon / rate) / 2)
        scale = 1 + math.exp(-rate)
        value = max(
            1
            - math.exp(-rate * (cut + 1)) / scale
            - math.exp(epsilon - rate * (shift - cut)) / scale
            for cut in range(max(0, best - 1), min(shift, best + 1) + 1)
        )
        slack = 64 * 2.0**-53
        return Bounds(max(0.0, value - slack), max(0.0, value + slack))


@shifted.register
def _(law: DiscreteLaplace, shift: int) -> ShiftedNoise:
    return ShiftedLaplace(law, shift)


@shifted.register
def _(law: NegativeBinomialDifference, shift: int) -> ShiftedNoise:
    return ShiftedLaplaceParts(law, law.shape, law.rate, shift)
