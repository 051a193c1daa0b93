"""d_ε, the divergence that governs private index policies, in closed form.

d_ε(x, y) = inf over z in [x, y] of ε(z − x) + kl(z, y)   (Azize et al. 2025).
The infimum is at z = max(x, σ(logit y − ε)); where that exceeds x,
d_ε = −εx − ln(1 − y(1 − e^−ε)), which also inverts in closed form.
All functions take arrays and broadcast.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wallflower.protocol.privacy.mechanism import (
    NO_NOISE,
    PER_COHORT,
    PER_USER,
    Mechanism,
)

Doubles = NDArray[np.float64]

_BISECTIONS = 50


def bernoulli_kl(x: Doubles, y: Doubles) -> Doubles:
    """Kullback–Leibler divergence of Bernoulli laws, ∞ where it is."""
    # A fifth of a second to import, which elimination need not wait for.
    from scipy.special import xlogy

    with np.errstate(divide="ignore", invalid="ignore"):
        value = xlogy(x, x) - xlogy(x, y) + xlogy(1 - x, 1 - x) - xlogy(1 - x, 1 - y)
    return np.asarray(np.maximum(value, 0.0))


def private_divergence(x: Doubles, y: Doubles, epsilon: float) -> Doubles:
    """d_ε(x, y) for y ≥ x, and 0 below; ε = ∞ gives kl(x, y)."""
    x, y = np.broadcast_arrays(x, y)
    if math.isinf(epsilon):
        return np.where(y > x, bernoulli_kl(x, y), 0.0)
    turn = _turning_point(x, epsilon)
    private = -epsilon * x - np.log1p(y * math.expm1(-epsilon))
    plain = bernoulli_kl(x, np.minimum(y, turn))
    return np.where(y > x, np.maximum(np.where(y > turn, private, plain), 0.0), 0.0)


def private_upper_bound(x: Doubles, level: Doubles, epsilon: float) -> Doubles:
    """Largest y in [x, 1] with d_ε(x, y) ≤ level."""
    x, level = np.broadcast_arrays(x, level)
    turn = _turning_point(x, epsilon)
    low, high = x.astype(np.float64), turn.copy()
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        inside = bernoulli_kl(x, middle) <= level
        low, high = np.where(inside, middle, low), np.where(inside, high, middle)
    if math.isinf(epsilon):
        return low
    private = -np.expm1(-epsilon * x - level) / -math.expm1(-epsilon)
    at_turn = bernoulli_kl(x, turn)
    return np.where(level >= at_turn, np.clip(private, turn, 1.0), low)


def private_noise_part(x: Doubles, y: Doubles, epsilon: float) -> Doubles:
    """Give the part ε(z − x) of d_ε(x, y): what is put down to the noise."""
    from scipy.special import expit, logit

    if math.isinf(epsilon):
        return np.zeros(np.broadcast_shapes(np.shape(x), np.shape(y)))
    with np.errstate(divide="ignore"):
        lowest = expit(logit(y) - epsilon)
    return np.asarray(epsilon * np.maximum(lowest - x, 0.0))


def _turning_point(x: Doubles, epsilon: float) -> Doubles:
    """Give the y above which the noise, not the sampling, limits."""
    from scipy.special import expit, logit

    if math.isinf(epsilon):
        return np.ones_like(x, dtype=np.float64)
    with np.errstate(divide="ignore"):
        return np.asarray(expit(logit(x) + epsilon))


def quadratic_divergence(x: Doubles, y: Doubles, epsilon: float) -> Doubles:
    """(y − x)²/(2v), v = 1/4 + 2/ε²: each user's own Laplace noise counts per user."""
    gap = np.maximum(np.asarray(y) - x, 0.0)
    return np.asarray(gap**2 / (0.5 + 4 / epsilon**2))


def quadratic_upper_bound(x: Doubles, level: Doubles, epsilon: float) -> Doubles:
    """Largest y in [x, 1] with the quadratic divergence at most level."""
    reach = np.sqrt(np.asarray(level) * (0.5 + 4 / epsilon**2))
    return np.asarray(np.minimum(x + reach, 1.0))


def no_noise_part(x: Doubles, y: Doubles, epsilon: float) -> Doubles:
    """Give 0: many small noises are counted as part of the sampling."""
    return np.zeros(np.broadcast_shapes(np.shape(x), np.shape(y)))


_Function = Callable[[Doubles, Doubles, float], Doubles]


@dataclass(frozen=True, slots=True)
class Divergence:
    """A divergence at a mechanism's privacy level.

    `upper_bound` is its upward inverse, `by_noise` what it puts down to the noise.
    """

    between: _Function
    upper_bound: _Function
    by_noise: _Function
    epsilon: float


_BY_GROWTH = {
    NO_NOISE: (private_divergence, private_upper_bound, private_noise_part),
    PER_COHORT: (private_divergence, private_upper_bound, private_noise_part),
    PER_USER: (quadratic_divergence, quadratic_upper_bound, no_noise_part),
}


def divergence_for(mechanism: Mechanism) -> Divergence:
    """Choose by how the noise grows with the users.

    One noise a cohort (central, distributed): d_ε. One noise a user (local): the
    quadratic one, since d_ε would be overconfident. No noise: kl.
    """
    grows = mechanism.noise_grows
    epsilon = math.inf if grows == NO_NOISE else float(mechanism.epsilon)
    return Divergence(*_BY_GROWTH[grows], epsilon)
