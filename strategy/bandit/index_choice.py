"""Which arm the index policy `dp-imed` asks next.

It asks the arm of fewest users among those that are not yet set aside. An arm is
set aside while

    n·d_ε(mean, best mean) − ln q_b + ¾ ln(εn) + 1.8 ≥ ln T.

The first term is how unlikely its sums are were it as good as the leader, in nats, with
one Laplace noise; b noises are likelier by q_b (`laplace_excess`). The next two say
that a mistake is worth less care the more was paid to see the arm. The plain rule
(Honda and Takemura 2015: ask the smallest n·d + ln n) reaches the lower bound too, but
locks onto a wrong arm for good in one run of 500: it asks ties first, counts b noises
as one, and trusts batches of 4/ε users.

d_ε(x, y) = inf over z in [x, y] of ε(z − x) + kl(z, y)   (Azize et al. 2025) has a
closed form. The infimum is at z = max(x, σ(logit y − ε)); where that exceeds x,
d_ε = −εx − ln(1 − y(1 − e^−ε)). All functions take arrays and broadcast.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wallflower.protocol.privacy.mechanism import (
    NO_NOISE,
    PER_COHORT,
    PER_USER,
    Mechanism,
)

Doubles = NDArray[np.float64]

Arms = np.ndarray[Any, np.dtype[np.intp]]

# Chosen on the instances that `make bench-index` prints, at T = 10⁶.
_CARE_LOST = 0.75
_OFFSET = 1.8
# By then cohorts are so large that noise does not matter.
_MOST_NOISES = 24


@dataclass(frozen=True, eq=False)
class ArmTotals:
    """What is known of every arm; the last axis runs over the arms.

    Attributes
    ----------
    sums : in units of reward.
    noises : noises of a whole cohort behind the sum: survivors over the honest floor.
    """

    sums: Doubles
    users: Doubles
    noises: Doubles

    @property
    def means(self) -> Doubles:
        """Estimates, which noise may have moved out of [0, 1]."""
        return np.asarray(self.sums / self.users)

    @property
    def leader(self) -> Arms:
        """Arm of the largest estimate."""
        return np.asarray(np.argmax(self.means, axis=-1))


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


def private_noise_part(x: Doubles, y: Doubles, epsilon: float) -> Doubles:
    """Return the part ε(z − x) of d_ε(x, y): what is put down to the noise."""
    from scipy.special import expit, logit

    if math.isinf(epsilon):
        return np.zeros(np.broadcast_shapes(np.shape(x), np.shape(y)))
    with np.errstate(divide="ignore"):
        lowest = expit(logit(y) - epsilon)
    return np.asarray(epsilon * np.maximum(lowest - x, 0.0))


def _turning_point(x: Doubles, epsilon: float) -> Doubles:
    """Return the y above which the noise, not the sampling, limits."""
    from scipy.special import expit, logit

    if math.isinf(epsilon):
        return np.ones_like(x, dtype=np.float64)
    with np.errstate(divide="ignore"):
        return np.asarray(expit(logit(x) + epsilon))


def quadratic_divergence(x: Doubles, y: Doubles, epsilon: float) -> Doubles:
    """(y − x)²/(2v), v = 1/4 + 2/ε²: each user's own Laplace noise counts per user."""
    gap = np.maximum(np.asarray(y) - x, 0.0)
    return np.asarray(gap**2 / (0.5 + 4 / epsilon**2))


def no_noise_part(x: Doubles, y: Doubles, epsilon: float) -> Doubles:
    """Return 0: many small noises are counted as part of the sampling."""
    return np.zeros(np.broadcast_shapes(np.shape(x), np.shape(y)))


_Function = Callable[[Doubles, Doubles, float], Doubles]


@dataclass(frozen=True, slots=True)
class Divergence:
    """A divergence at a mechanism's privacy level.

    `by_noise` is what it puts down to the noise.
    """

    between: _Function
    by_noise: _Function
    epsilon: float


_BY_GROWTH = {
    NO_NOISE: (private_divergence, private_noise_part),
    PER_COHORT: (private_divergence, private_noise_part),
    PER_USER: (quadratic_divergence, no_noise_part),
}


def divergence_for(mechanism: Mechanism) -> Divergence:
    """Choose by how the noise grows with the users.

    One noise a cohort (central, distributed): d_ε. One noise a user (local): the
    quadratic one, since d_ε would be overconfident. No noise: kl.
    """
    grows = mechanism.noise_grows
    epsilon = math.inf if grows == NO_NOISE else float(mechanism.epsilon)
    return Divergence(*_BY_GROWTH[grows], epsilon)


def choose_arm(totals: ArmTotals, divergence: Divergence, horizon: int) -> Arms:
    """Arm of fewest users among the leader and those not set aside."""
    users, epsilon = totals.users, divergence.epsilon
    means = np.clip(totals.means, 0, 1)
    best = means.max(axis=-1, keepdims=True)
    index = users * divergence.between(means, best, epsilon)
    by_noise = users * divergence.by_noise(means, best, epsilon)
    index -= laplace_excess(totals.noises, by_noise)
    index += _CARE_LOST * np.log(min(epsilon, 1.0) * users) + _OFFSET
    asked = (index < math.log(horizon)) | (means >= best)
    return np.asarray(np.argmin(np.where(asked, users, np.inf), axis=-1))


def laplace_excess(noises: Doubles, nats: Doubles) -> Doubles:
    """ln of eᵘ P(X > u), where that is above 1, for X the sum of b Laplace(1) draws.

    Examples
    --------
    >>> q_2 = (2 + 10) / 4
    >>> bool(np.isclose(laplace_excess(np.array(2.0), np.array(10.0)), np.log(q_2)))
    True
    """
    counts = np.clip(np.ceil(noises - 1e-9), 1, _MOST_NOISES).astype(np.intp)
    counts, nats = np.broadcast_arrays(counts, nats)
    value = np.zeros(nats.shape)
    table = _tail_polynomials()
    for power in range(int(counts.max(initial=1)) - 1, -1, -1):
        value = value * nats + table[counts, power]
    return np.log(np.maximum(value, 1.0))


@lru_cache(maxsize=1)
def _tail_polynomials() -> Doubles:
    """Row b: coefficients of q_b, P(X > u) = e^−u q_b(u) for u ≥ 0.

    The density is e^−u Σ_k (b−1+k)! u^(b−1−k) / (k! (b−1−k)! (b−1)! 2^(b+k)).
    """
    table = np.zeros((_MOST_NOISES + 1, _MOST_NOISES))
    factorial = math.factorial
    for count in range(1, _MOST_NOISES + 1):
        for k in range(count):
            power = count - 1 - k
            ways = factorial(count - 1 + k) // (factorial(k) * factorial(count - 1))
            # ∫ e^−t tᵐ/m! from u on is e^−u Σ_{j ≤ m} uʲ/j!
            for j in range(power + 1):
                table[count, j] += ways / 2 ** (count + k) / factorial(j)
    return table
