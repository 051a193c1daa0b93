"""The integers of a cohort: precision g, noise bound τ, modulus m.

Both sides compute them by integer arithmetic from public facts, so that they agree to
the last unit and no float decides what a user sends.
"""

from __future__ import annotations

import math
from fractions import Fraction

from wallflower.protocol.errors import InputError
from wallflower.protocol.noise.balls import ball
from wallflower.protocol.noise.balls import precision as working_precision
from wallflower.protocol.noise.law import NoiseLaw

# Exact quantiles take about 0.1 s at these standard deviations, and time and memory
# in proportion beyond them.
WIDEST_EXACT_LAPLACE = 2_000
WIDEST_EXACT_NORMAL = 20_000
_WIDEST_SHARE = 100_000
SQRT2 = math.sqrt(2)


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


def noise_bound(
    noise: NoiseLaw,
    level: Fraction,
    variance_factor: Fraction,
    tail: Fraction,
    widest_exact: int = WIDEST_EXACT_NORMAL,
) -> int:
    """τ: the total noise passes it in absolute value with probability at most `level`.

    The exact two-sided quantile where the law is narrow enough to be tabulated at
    once; else `sub_gamma_bound`, because then 2τ is far below ng and a larger τ is
    always allowed.

    Deviation: the paper bounds τ by a tail inequality at level p; the caller passes a
    small part of the (arm, batch) share of the failure probability, since a wrapped
    sum moves the mean by about one.
    """
    if variance_factor <= widest_exact**2:
        return noise.two_sided_bound(level)
    return sub_gamma_bound(variance_factor, tail, level)


def sub_gamma_bound(variance_factor: Fraction, tail: Fraction, level: Fraction) -> int:
    """Return ⌈√(2vx) + cx⌉ with x = ln(2/level).

    A law is sub-gamma (v, c) if ln E e^{λX} ≤ vλ²/(2(1 − cλ)); it then passes
    √(2vx) + cx with probability at most e^{−x} on each side (Boucheron, Lugosi and
    Massart 2013, section 2.4). Ball arithmetic; the upper end is rounded up.

    ===================  ==========  =====
    law                  v           c
    ===================  ==========  =====
    R parts of Lap_ℤ(t)  2Rt²        t
    Sk(0, σ²)            σ²          1/3
    discrete Gaussians   Σσ²         0
    ===================  ==========  =====
    """
    with working_precision(192):
        logarithm = ball(2 / level).log()
        bound = (2 * ball(variance_factor) * logarithm).sqrt() + ball(tail) * logarithm
        return int(bound.upper().ceil().unique_fmpz())


def find_widening(survivors: int, honest_floor: int) -> float:
    """√(survivors/floor): what shares calibrated to the floor add to a deviation.

    Deviation: the paper knows no dropouts, hence no such factor.
    """
    return math.sqrt(max(survivors / honest_floor, 1.0))


def check_share(variance: Fraction, honest_floor: int) -> None:
    """Refuse shares so wide that a client could not afford to draw them."""
    if variance > _WIDEST_SHARE**2:
        raise InputError(
            "honest_floor",
            honest_floor,
            f"so large that one user's noise stays below {_WIDEST_SHARE} steps",
        )
