"""The integers of a cohort: precision g, noise bound τ, modulus m.

Both sides compute them by integer arithmetic from public facts, so that they agree to
the last unit and no float decides what a user sends.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from protocol.law import NoiseLaw


def precision_for(
    epsilon: Fraction, cohort_size: int, scale: int | Fraction = 1
) -> int:
    """⌈sε√n⌉, by an integer square root.

    g ≥ sε√n holds iff g² ≥ ⌈s²ε²n⌉, because g² is an integer.

    Examples
    --------
    >>> precision_for(Fraction(1, 10), 100), precision_for(Fraction(1, 10), 101)
    (1, 2)
    """
    square = math.ceil(Fraction(scale) ** 2 * epsilon**2 * cohort_size)
    return math.isqrt(square - 1) + 1


def modulus_for(cohort_size: int, precision: int, noise_bound: int) -> int:
    """m = ng + 2τ + 1: room for every sum from −τ to ng + τ."""
    return cohort_size * precision + 2 * noise_bound + 1


@dataclass(frozen=True, slots=True)
class Calibration:
    """The public numbers of one cohort before its noise bound is known."""

    epsilon: Fraction
    cohort_size: int
    honest_floor: int
    precision: int

    @property
    def rate(self) -> Fraction:
        """ε/g: one reward moves the sum by at most g, and Lap_ℤ(g/ε) falls by
        e^{−ε/g} a step, so the loss is ε.
        """
        return self.epsilon / self.precision

    @property
    def variance(self) -> Fraction:
        """g²/ε²: the variance of Gaussian-like total noise."""
        return (self.precision / self.epsilon) ** 2

    def shape(self, users: int) -> Fraction:
        """users/h: how many full noises the shares of so many users make."""
        return Fraction(users, self.honest_floor)


def bound_of(noise: NoiseLaw | None, wrap_probability: Fraction) -> int:
    """τ: the smallest bound the total noise passes with at most this probability.

    Deviation: the paper bounds τ by a tail inequality at level p; this is the exact
    two-sided quantile, and the caller passes a small part of the (arm, batch) share
    of the failure probability, since a wrapped sum moves the mean by about one.
    """
    return 0 if noise is None else noise.two_sided_bound(wrap_probability)
