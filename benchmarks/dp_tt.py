"""DP-TT of Jourdan and Azize (2025, arXiv 2510.17348), on many instances at once.

A trusted server asks users one by one. An arm's phase ends when its pulls have doubled;
its estimate is then the mean of *all* its pulls, with one more draw of Laplace noise
1/ε in its sum. The next user gets the leader (the largest u with n d⁺(μ̂, u) ≤ ln t) or,
with probability ½, the challenger: the arm of the smallest W + ln n, where d⁺ and the
transport cost W are those of `benchmarks.private_bound`. It stops when for each other
arm j, with n users in the leader's ended phases and m in the other's,

    W ≥ ln((K − 1)/δ) + ln(1 + ln n) + ln(1 + ln m).

Deviation: written from its abstract, without its code. The threshold is that
of the experiments with AdaP-TT without their term for noise, which W contains; any
proved one is larger. Leader and challenger are chosen anew after every hundredth of
the users so far.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from benchmarks.adap_tt import AdapTopTwo, Booleans, Doubles
from benchmarks.private_bound import private_divergence, transport_cost

_STEPS = 18  # of searches: the costs are flat around their minimum


class DpTopTwo(AdapTopTwo):
    """Plays every instance of one row of means."""

    def __init__(
        self,
        means: tuple[float, ...],
        epsilon: float,
        delta: float,
        instances: int,
        seed: int,
    ) -> None:
        self._sums = np.zeros((instances, len(means)))
        super().__init__(means, epsilon, delta, instances, seed)
        self._log = math.log((len(means) - 1) / delta)

    def _end_phases(self, ended: Booleans) -> None:
        noise = self._generator.laplace(0.0, 1 / self._epsilon, int(ended.sum()))
        self._sums[ended] += self._rewards[ended] + noise
        self._before[ended] += self._pulls[ended]
        self._last[ended] = self._before[ended]
        self._estimates[ended] = np.clip(self._sums[ended] / self._last[ended], 0, 1)
        self._pulls[ended] = 0
        self._rewards[ended] = 0

    def _leaders(self) -> NDArray[np.intp]:
        total = self._before.sum(axis=1, keepdims=True)
        low, high = self._estimates, np.ones_like(self._estimates)
        for _ in range(_STEPS):
            middle = (low + high) / 2
            cost = private_divergence(self._estimates, middle, self._epsilon)
            likely = self._last * cost <= np.log(total)
            low, high = np.where(likely, middle, low), np.where(likely, high, middle)
        return np.asarray(np.argmax(low, axis=1))

    def _challengers(self, leaders: NDArray[np.intp]) -> NDArray[np.intp]:
        counts = self._before + self._pulls
        cost = self._costs(leaders, counts) + np.log(counts)
        cost[self._rows, leaders] = np.inf
        return np.asarray(np.argmin(cost, axis=1))

    def _sure(self) -> Booleans:
        """Where every other arm is far enough behind the leader."""
        leaders = self._leaders()
        here = (self._rows, leaders)
        looks = np.log1p(np.log(self._last))
        enough = self._costs(leaders, self._last) >= (
            self._log + looks + looks[here][:, None]
        )
        enough[here] = True
        return np.asarray(enough.all(axis=1))

    def _costs(self, leaders: NDArray[np.intp], counts: Doubles) -> Doubles:
        here = (self._rows, leaders)
        best = np.broadcast_to(self._estimates[here][:, None], counts.shape)
        users = np.broadcast_to(counts[here][:, None], counts.shape)
        return transport_cost(
            best, self._estimates, users, counts, self._epsilon, _STEPS
        )
