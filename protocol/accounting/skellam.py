"""Divergences of Skellam noise."""

from __future__ import annotations

import math

from flint import arb

from wallflower.protocol.accounting.log_masses import LogMasses, Ratio, masses_by_ratios
from wallflower.protocol.accounting.shifted import ShiftedNoise, shifted
from wallflower.protocol.noise.balls import ball, precision
from wallflower.protocol.noise.laws import Skellam


class ShiftedSkellam(ShiftedNoise):
    """Sk(0, z): f(x) = e^{−z} I_x(z).

    Its ratios follow from I_{v−1} − I_{v+1} = (2v/z) I_v.
    """

    def __init__(self, law: Skellam, shift: int) -> None:
        super().__init__(shift)
        self._law = law
        self._variance = float(law.variance())

    def build(self, reach: int) -> LogMasses:
        """Ratios downwards from Amos's bounds.

        A step shrinks the error of the start by e^{−2 asinh(v/z)}; it begins far
        enough out to have vanished at `reach`.
        """
        variance = self._variance
        outer = reach + math.ceil(20 / math.asinh(reach / variance))
        with precision(128):
            exact = ball(self._law.variance_parameter)
            log_at_zero = float((exact.bessel_i(arb(0), True).log()).mid())

        def step(k: int, above: float) -> tuple[float, float]:
            ratio = 1 / (2 * k / variance + above)
            return ratio, -ratio * above

        return masses_by_ratios(
            log_at_zero,
            abs(log_at_zero) * 2.0**-50,
            amos_ratio(outer + 1, variance),
            step,
            outer,
        ).up_to(reach)

    def log_far_mass(self, beyond: int) -> float:
        """The terms of order one."""
        return self.log_far_terms(1.0, beyond)

    def log_far_terms(self, order: float, beyond: int) -> float:
        """A geometric series under a concave exponent.

        Chernoff gives f(v) ≤ exp(√(z²+v²) − z − v·asinh(v/z)). Amos (1974) gives
        I_{v+1}/I_v ≥ e^{−asinh((v+3/2)/z)}, hence f(v)/f(v+Δ) ≤ e^{Δ·asinh((v+Δ+½)/z)}.
        Together a term is at most e^{φ(v)} with φ'' < 0, so the terms from v on are at
        most e^{φ(v)}/(1 − e^{φ'(v)}) once φ'(v) < 0.
        """
        first, variance = beyond + 1, self._variance
        far = first + self.shift + 0.5
        weight = (order - 1) * self.shift
        slope = weight / math.hypot(far, variance) - math.asinh(first / variance)
        if slope >= 0:
            return math.inf
        exponent = (
            math.hypot(first, variance)
            - variance
            - first * math.asinh(first / variance)
            + weight * math.asinh(far / variance)
        )
        return exponent - math.log(-math.expm1(slope))

    def pure(self) -> float:
        """Infinite: the ratio grows without bound in the tail."""
        return math.inf


def amos_ratio(order: int, variance: float) -> Ratio:
    """I_v/I_{v−1} enclosed by Amos (1974), v ≥ 1.

    z/(v − ½ + √((v + ½)² + z²)) ≤ I_v/I_{v−1} ≤ z/(v − ½ + √((v − ½)² + z²)).
    """
    low = variance / (order - 0.5 + math.hypot(order + 0.5, variance))
    high = variance / (order - 0.5 + math.hypot(order - 0.5, variance))
    return Ratio((low + high) / 2, (high - low) / low + 2.0**-48)


@shifted.register
def _(law: Skellam, shift: int) -> ShiftedNoise:
    return ShiftedSkellam(law, shift)
