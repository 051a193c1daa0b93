"""Gauss's function ₂F₁(R + extra, R + x; x + 1; e^{−2·rate}), enclosed.

Its series has positive terms. Where they fall fast enough, adding them up takes two
milliseconds. Elsewhere flint subtracts two series in 1 − e^{−2·rate}. That loses about
three bits for each unit of x·rate, and where it lost half of all bits flint begins anew
with a routine that takes ten milliseconds or more. With bits to spare it takes less
than one.
"""

from __future__ import annotations

from fractions import Fraction

from flint import arb, ctx

from wallflower.protocol.noise.balls import Ball, ball, precision

_LARGEST_SHAPE = 4  # more, and the terms grow before they fall
_SMALLEST_RATE = Fraction(1, 40)
_LOOK_EVERY = 32  # terms
_SPARE_BITS = 64


def gauss_series(shape: Fraction, rate: Fraction, x: int, extra: int) -> Ball:
    """Enclose ₂F₁ at the working precision; x ≥ 0, extra 0 or 1."""
    if shape <= _LARGEST_SHAPE and rate >= _SMALLEST_RATE:
        return _summed(shape, rate, x, extra)
    # With a larger shape less is lost than is spared.
    spare = _SPARE_BITS + int(6 * x * rate) if shape <= _LARGEST_SHAPE else 0
    with precision(ctx.prec + spare):
        argument, parameter = (-2 * ball(rate)).exp(), ball(shape)
        return argument.hypgeom_2f1(parameter + extra, parameter + x, arb(x + 1))


def _summed(shape: Fraction, rate: Fraction, x: int, extra: int) -> Ball:
    """Add terms up until the rest is below the last bit, and enclose the rest.

    A term is the one before times z·(a/e)·(b/c), where a, b, c, e grow by one a step
    (all held times the denominator of R). a/e and b/c tend to one from their side, so
    max(a/e, 1)·max(b/c, 1)·z bounds the ratio of all terms to come.
    """
    step = shape.denominator
    a, b = shape.numerator + extra * step, shape.numerator + x * step
    c, e = (x + 1) * step, step
    z, negligible = (-2 * ball(rate)).exp(), arb(2) ** -ctx.prec
    term = total = arb(1)
    while True:
        for _ in range(_LOOK_EVERY):
            term = term * (a * b) * z / (c * e)
            total += term
            a, b, c, e = a + step, b + step, c + step, e + step
        ratio = ball(Fraction(max(a, e), e) * Fraction(max(b, c), c)) * z
        if ratio < 1:
            rest = term * ratio / (1 - ratio)
            if rest < total * negligible:
                return total + rest.union(arb(0))
