"""How the failure probability p is shared out, in exact fractions.

Batch b gets 6p/(π² b²); since Σ 1/b² = π²/6 all batches together spend at most p.
(Deviation: the paper gives every batch p/b², which sums to 1.64 p per bound and to
4.11 p over its three bounds.) Within a batch a hundredth pays for wrap-around, split
over the K cohorts, and the rest for deviations: rarer wraps cost a few units of noise
bound, while every share a deviation loses widens all radii. 607/1000 < 6/π² keeps it
rational.
"""

from __future__ import annotations

from fractions import Fraction

SIX_OVER_PI_SQUARED = Fraction(607, 1000)
WRAP_PART = Fraction(1, 100)


def batch_share(failure_probability: Fraction, batch: int) -> Fraction:
    """Give what batch `batch` may spend: at most 6p/(π² b²)."""
    return SIX_OVER_PI_SQUARED * failure_probability / batch**2


def wrap_probability(failure_probability: Fraction, batch: int, arms: int) -> Fraction:
    """Level of the modulus of one cohort: a hundredth of the share 6p/(π² b² K).

    Rounded down to a unit fraction: it travels in every cohort's public description,
    where numerator and denominator must stay small.
    """
    level = WRAP_PART * batch_share(failure_probability, batch) / arms
    return Fraction(1, -(-level.denominator // level.numerator))


def pair_level(failure_probability: Fraction, batch: int, arms: int) -> Fraction:
    """Level of one comparison with the best of `arms` arms; each has arms − 1."""
    share = (1 - WRAP_PART) * batch_share(failure_probability, batch)
    return share / max(arms - 1, 1)


def side_level(failure_probability: Fraction, batch: int, arms: int) -> Fraction:
    """Level of one side of one arm's own interval."""
    share = (1 - WRAP_PART) * batch_share(failure_probability, batch)
    return share / (2 * arms)
