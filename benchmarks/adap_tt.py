"""AdaP-TT of Azize, Jourdan, Al Marjani and Basu (2023), on many instances at once.

A trusted server asks users one by one. An arm's phase ends when its pulls have doubled;
its estimate is then the mean of that phase alone plus Laplace noise 1/(ε n). The next
user gets the leader (the largest upper confidence bound) or, with probability ½, the
challenger: the arm that needs least to overtake the leader. It stops when for each
other arm j, with n users in its last phase and m in the leader's,

    (μ̂ − μ̂_j)² / (2/n + 2/m) ≥ ln 1/δ + ln(1 + ln n) + ln(1 + ln m)
                                  + (1/n + 1/m) ln²(1/δ) / ε²,

the threshold of the paper's experiments; the proved one is larger.

Deviation: leader and challenger are chosen anew after every hundredth of the users so
far and at the end of a phase, not after every user; otherwise 10⁸ users would take
days. Between two phases only the challenger could have changed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Doubles = NDArray[np.float64]
Booleans = NDArray[np.bool_]

_LEADERS_PART = 0.5
_PART = 100  # users so far for each user of a step


@dataclass(frozen=True, slots=True)
class Stopped:
    """Users asked by each instance, which of them decided, and which erred.

    `counted` leaves out the users of phases that were under way at the end, as the
    code published with the paper does.
    """

    users: Doubles
    counted: Doubles
    decided: Booleans
    wrong: Booleans


class AdapTopTwo:
    """Plays every instance of one row of means."""

    def __init__(
        self,
        means: tuple[float, ...],
        epsilon: float,
        delta: float,
        instances: int,
        seed: int,
    ) -> None:
        self._means = np.array(means)
        self._epsilon, self._log = epsilon, math.log(1 / delta)
        self._generator = np.random.default_rng(seed)
        shape = (instances, len(means))
        self._before = np.zeros(shape)  # pulls of ended phases
        self._last = np.ones(shape)  # pulls of the last ended phase
        self._pulls = np.ones(shape)  # of the phase under way; one each to begin with
        self._rewards = (self._generator.random(shape) < self._means).astype(float)
        self._estimates = np.zeros(shape)
        self._rows = np.arange(instances)
        self._end_phases(np.ones(shape, dtype=np.bool_))

    def run(self, horizon: int) -> Stopped:
        """Ask until every instance has stopped or has asked `horizon` users."""
        instances = len(self._rows)
        users = np.full(instances, float(horizon))
        counted = users.copy()
        decided = np.zeros(instances, dtype=np.bool_)
        wrong = np.zeros(instances, dtype=np.bool_)
        live = np.ones(instances, dtype=np.bool_)
        while live.any():
            ended = self._step(live)
            asked = (self._before + self._pulls).sum(axis=1)
            stops = live & ended & self._sure()
            users[stops], decided[stops] = asked[stops], True
            counted[stops] = self._before.sum(axis=1)[stops]
            best = self._means[np.argmax(self._estimates, axis=1)]
            wrong |= stops & (best < self._means.max())
            live &= ~stops & (asked < horizon)
        return Stopped(users, counted, decided, wrong)

    def _step(self, live: Booleans) -> Booleans:
        """Ask some users of every live instance; tell where a phase has ended."""
        leaders = self._leaders()
        challengers = self._challengers(leaders)
        total = (self._before + self._pulls).sum(axis=1)
        size = np.maximum(total // _PART, 1).astype(np.int64)
        size = np.where(live, size, 0)
        first = self._generator.binomial(size, _LEADERS_PART)
        for arms, wanted in ((leaders, first), (challengers, size - first)):
            here = (self._rows, arms)
            # A phase has as many pulls as all before it.
            room = self._before[here] - self._pulls[here]
            count = np.minimum(wanted, room.astype(np.int64))
            self._rewards[here] += self._generator.binomial(count, self._means[arms])
            self._pulls[here] += count
        full = (self._pulls == self._before) & live[:, None]
        self._end_phases(full)
        return np.asarray(full.any(axis=1))

    def _end_phases(self, ended: Booleans) -> None:
        pulls = self._pulls[ended]
        noise = self._generator.laplace(0.0, 1 / (self._epsilon * pulls))
        self._estimates[ended] = self._rewards[ended] / pulls + noise
        self._last[ended] = pulls
        self._before[ended] += pulls
        self._pulls[ended] = 0
        self._rewards[ended] = 0

    def _leaders(self) -> NDArray[np.intp]:
        grown = np.log(self._before.sum(axis=1, keepdims=True))
        width = grown / (self._epsilon * self._last) + np.sqrt(grown / (2 * self._last))
        return np.asarray(np.argmax(self._estimates + width, axis=1))

    def _challengers(self, leaders: NDArray[np.intp]) -> NDArray[np.intp]:
        here = (self._rows, leaders)
        counts = self._before + self._pulls
        bonus = 1 / (1 + np.sqrt(self._before.sum(axis=1, keepdims=True)))
        lead = self._estimates[here][:, None] - self._estimates + bonus
        cost = lead / np.sqrt(1 / counts[here][:, None] + 1 / counts)
        cost[here] = np.inf
        return np.asarray(np.argmin(cost, axis=1))

    def _sure(self) -> Booleans:
        """Where every other arm is far enough behind the leader."""
        leaders = self._leaders()
        here = (self._rows, leaders)
        most, least = self._last[here][:, None], self._last
        apart = 1 / most + 1 / least
        cost = 0.5 * (self._estimates[here][:, None] - self._estimates) ** 2 / apart
        needed = self._log + np.log1p(np.log(most)) + np.log1p(np.log(least))
        needed = needed + apart * (self._log / self._epsilon) ** 2
        enough = cost >= needed
        enough[here] = True
        return np.asarray(enough.all(axis=1))
