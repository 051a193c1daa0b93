"""The fewest users that any private rule can decide with, in the mean.

Jourdan and Azize (2025, arXiv 2510.17348): a rule that promises ε to each user, trusts
its server and errs with probability at most p on every instance asks at least

    kl(p, 1 − p) · min over shares w of 1 / min over arms a of W_a(w),
    W_a(w) = min over u of w_best d⁻(μ_best, u) + w_a d⁺(μ_a, u)

users in the mean. d is the cheapest way from one mean to another where a step may be
paid for by ε for each unit, or by its relative entropy:

    d⁺(x, y) = min over z in [x, y] of ε (z − x) + kl(z, y),   x ≤ y.

d⁻ is the same with failures for successes.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Doubles = NDArray[np.float64]

_INSIDE = 1e-12  # means are kept so far from 0 and 1
_GOLDEN = (math.sqrt(5) - 1) / 2
_STEPS = 40  # of searches that shrink an interval
_GRID = 100


def relative_entropy(one: Doubles, other: Doubles) -> Doubles:
    """Return kl of two coins."""
    one, other = (np.clip(side, _INSIDE, 1 - _INSIDE) for side in (one, other))
    tails = (1 - one) * np.log((1 - one) / (1 - other))
    return np.asarray(one * np.log(one / other) + tails)


def private_divergence(low: Doubles, high: Doubles, epsilon: float) -> Doubles:
    """Return d⁺ from `low` up to `high`; d⁻ is that of the means' complements."""
    # The slope of ε z + kl(z, y) vanishes where the odds are e^ε smaller than y's.
    shrunk = high * math.exp(-epsilon)
    turn = np.clip(shrunk / (1 - high + shrunk), low, high)
    return np.asarray(epsilon * (turn - low) + relative_entropy(turn, high))


def transport_cost(
    best: Doubles,
    other: Doubles,
    of_best: Doubles,
    of_other: Doubles,
    epsilon: float,
    steps: int = _STEPS,
) -> Doubles:
    """Return W of arms with so many users, by golden section; 0 where none is ahead."""

    def cost(middle: Doubles) -> Doubles:
        down = private_divergence(1 - best, 1 - middle, epsilon)
        up = private_divergence(other, middle, epsilon)
        return np.asarray(of_best * down + of_other * up)

    low, high = np.minimum(other, best), np.maximum(best, other)
    for _ in range(steps):
        width = _GOLDEN * (high - low)
        left, right = high - width, low + width
        lower = cost(left) <= cost(right)
        high, low = np.where(lower, right, high), np.where(lower, low, left)
    return np.where(best > other, cost((low + high) / 2), 0.0)


def fewest_users(means: tuple[float, ...], epsilon: float, p: float) -> float:
    """Return the bound for one instance with a single best arm."""
    ordered = np.sort(np.array(means))[::-1]
    best, others = ordered[:1], ordered[None, 1:]
    most = private_divergence(1 - best, 1 - others, epsilon).min()
    low, high = 0.01, 0.99
    for _ in range(2):
        parts = np.linspace(low, high, _GRID)
        users = _users_for(parts[:, None] * most, best, others, epsilon)
        place = int(users.argmin())
        low, high = parts[max(place - 1, 0)], parts[min(place + 1, _GRID - 1)]
    return (1 - 2 * p) * math.log((1 - p) / p) * float(users.min())


def _users_for(
    goals: Doubles, best: Doubles, others: Doubles, epsilon: float
) -> Doubles:
    """Return users for each nat if all W are a goal and the best arm is asked once."""
    shape = (len(goals), others.shape[1])
    low, high = np.full(shape, 1e-9), np.full(shape, 1e6)
    for _ in range(_STEPS):
        middle = np.sqrt(low * high)
        enough = transport_cost(best, others, np.ones(1), middle, epsilon) >= goals
        high, low = np.where(enough, middle, high), np.where(enough, low, middle)
    return np.asarray((1 + high.sum(axis=1)) / goals[:, 0])
