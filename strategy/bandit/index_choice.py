"""Which arm an index policy asks next: `dp-klucb` and `dp-imed`.

`dp-imed` asks the arm of fewest users among those that are not yet set aside. An arm is
set aside while

    n·d_ε(mean, best mean) − ln q_b + ¾ ln(εn) + 1.8 ≥ ln T.

The first term is how unlikely its sums are were it as good as the leader, in nats, with
one Laplace noise; b noises are likelier by q_b (`laplace_excess`). The next two say
that a mistake is worth less care the more was paid to see the arm. The plain rule
(Honda and Takemura 2015: ask the smallest n·d + ln n) reaches the lower bound too, but
locks onto a wrong arm for good in one run of 500: it asks ties first, counts b noises
as one, and trusts batches of 4/ε users.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from wallflower.strategy.bandit.divergence import Divergence, Doubles

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


def klucb_choice(standing: ArmTotals, divergence: Divergence, horizon: int) -> Arms:
    """Arm with the largest max{μ : n·d(mean, μ) ≤ ln t}, whatever the horizon.

    Where several bounds reach 1, the arm asked least goes first.
    """
    users = standing.users
    level = np.log(np.maximum(users.sum(axis=-1), 2.0))[..., None] / users
    means = np.clip(standing.means, 0, 1)
    bounds = divergence.upper_bound(means, level, divergence.epsilon)
    best = bounds.max(axis=-1, keepdims=True)
    return np.asarray(np.argmin(np.where(bounds >= best, users, np.inf), axis=-1))


def imed_choice(standing: ArmTotals, divergence: Divergence, horizon: int) -> Arms:
    """Arm of fewest users among the leader and those not set aside."""
    users, epsilon = standing.users, divergence.epsilon
    means = np.clip(standing.means, 0, 1)
    best = means.max(axis=-1, keepdims=True)
    index = users * divergence.between(means, best, epsilon)
    by_noise = users * divergence.by_noise(means, best, epsilon)
    index -= laplace_excess(standing.noises, by_noise)
    index += _CARE_LOST * np.log(min(epsilon, 1.0) * users) + _OFFSET
    asked = (index < math.log(horizon)) | (means >= best)
    return np.asarray(np.argmin(np.where(asked, users, np.inf), axis=-1))


CHOICES: dict[str, Callable[[ArmTotals, Divergence, int], Arms]] = {
    "dp-klucb": klucb_choice,
    "dp-imed": imed_choice,
}


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
