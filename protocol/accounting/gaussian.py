"""Divergences of discrete Gaussian noise and of sums of it."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from flint import arb

from wallflower.protocol.accounting.log_masses import LogMasses, Ratio, masses_by_ratios
from wallflower.protocol.accounting.losses import Losses
from wallflower.protocol.accounting.shifted import Bounds, ShiftedNoise, shifted
from wallflower.protocol.noise.balls import ball, precision
from wallflower.protocol.noise.gaussian import DiscreteGaussian, Skellam
from wallflower.protocol.noise.gaussian_sums import SumOfDiscreteGaussians


class ShiftedGaussian(ShiftedNoise):
    """The sum Z of discrete Gaussians, compared with the discrete Gaussian W.

    |ln P[Z = x]/P[W = x]| ≤ ξ (Kairouz, Liu and Steinke 2021, Thm 5), where W has the
    summed variance: divergences of Z are those of W up to known powers of e^ξ. For a
    single discrete Gaussian ξ = 0.
    """

    def __init__(self, share: Fraction, count: int, shift: int) -> None:
        super().__init__(shift)
        self._variance = float(share * count)
        # A single discrete Gaussian has no excess.
        self._excess = (
            0.0 if count == 1 else SumOfDiscreteGaussians(count, share).closeness()
        )
        with precision(192):
            # Poisson summation: Σ e^{−x²/2v} = √(2πv) Σ e^{−2π²vk²}, all terms counted.
            total = ball(share * count)
            theta = (2 * arb.pi() * total).sqrt()
            wave = (-2 * arb.pi() ** 2 * total).exp()
            # Σ_{k≥1} w^{k²} lies between w and w/(1 − w).
            self._log_norm = float((theta * (1 + 2 * wave)).log().mid())
            self._norm_error = float((2 * wave * wave / (1 - wave)).upper()) + 2.0**-50

    def build(self, reach: int) -> LogMasses:
        """−x²/2v − ln Θ, of W."""
        points = np.arange(reach + 1, dtype=np.float64)
        squares = points * points / (2 * self._variance)
        error = squares * 2.0**-50 + self._norm_error + abs(self._log_norm) * 2.0**-52
        return LogMasses(-squares - self._log_norm, error)

    def renyi(self, order: float) -> Bounds:
        """αΔ²/2v for W, equal at integer orders and never more in between.

        Completing the square turns the sum into a shifted theta function, which is
        largest at whole shifts. Z adds at most ξ(2α − 1)/(α − 1) on either side.
        """
        whole = order * self.shift**2 / (2 * self._variance) * (1 + 2.0**-50)
        slack = self._excess * (2 * order - 1) / (order - 1)
        if order == int(order):
            return Bounds(max(0.0, whole * (1 - 2.0**-49) - slack), whole + slack)
        inner = super().renyi(order)
        return Bounds(max(0.0, inner.lower - slack), min(inner.upper, whole) + slack)

    def hockey_stick(self, epsilon: float) -> Bounds:
        """e^ξ δ_W(ε − 2ξ) bounds δ_Z(ε) from above, e^{−ξ} δ_W(ε + 2ξ) from below."""
        small = self._excess
        upper = super().hockey_stick(epsilon - 2 * small).upper * math.exp(small)
        lower = super().hockey_stick(epsilon + 2 * small).lower * math.exp(-small)
        return Bounds(lower, min(1.0, upper))

    def losses(self) -> Losses:
        """Those of W, plus 2ξ; each of Z's masses is at most e^ξ times that of W."""
        inner, more = super().losses(), math.exp(self._excess) * (1 + 2.0**-50)
        return Losses(
            inner.values + 2 * self._excess, inner.masses * more, inner.infinite * more
        )

    def log_far_mass(self, beyond: int) -> float:
        """Return the terms of order one."""
        return self.log_far_terms(1.0, beyond)

    def log_far_terms(self, order: float, beyond: int) -> float:
        """A geometric series: the terms are Gaussian around (α − 1)·shift."""
        centre = (order - 1) * self.shift
        distance = beyond + 1 - centre
        if distance <= 0:
            return math.inf
        exponent = order * (order - 1) * self.shift**2 - distance**2
        step = -math.expm1(-distance / self._variance)
        return exponent / (2 * self._variance) - self._log_norm - math.log(step)

    def pure(self) -> float:
        """Infinite: the ratio grows without bound in the tail."""
        return math.inf


@shifted.register
def _(law: DiscreteGaussian, shift: int) -> ShiftedNoise:
    return ShiftedGaussian(law.variance_parameter, 1, shift)


@shifted.register
def _(law: SumOfDiscreteGaussians, shift: int) -> ShiftedNoise:
    return ShiftedGaussian(law.variance_parameter, law.count, shift)


# --- Divergences of Skellam noise.


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
        """Return the terms of order one."""
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
