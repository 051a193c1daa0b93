"""The baseline DP-SE of Sajed and Sheffet (2019), on many instances at once.

Central model: a trusted server sees every reward. In epoch e, with D = 2^−e and |S|
active arms, each gets R = 1 + ⌈max(32 ln(8|S|e²/β)/D², 8 ln(4|S|e²/β)/(Dε))⌉ new pulls;
an arm is dropped when it trails by more than 2h + 2c.

Deviation: the published simulation adds one Laplace draw to all arms, which cancels in
every comparison; here each arm gets its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from wallflower.regret.draws import CohortDraws
from wallflower.regret.elimination import in_blocks
from wallflower.regret.simulation import Accounts, Simulation, SimulationResult
from wallflower.strategy.bandit.failure_budget import Shares


def epoch_size(epoch: int, active: int, epsilon: float, beta: float) -> int:
    """R: new pulls of each active arm in an epoch."""
    odds = active * epoch**2 / beta
    sampling = 32 * math.log(8 * odds) * 4.0**epoch
    privacy = 8 * math.log(4 * odds) * 2.0**epoch / epsilon
    return 1 + math.ceil(max(sampling, privacy))


def epoch_radius(
    epoch: int, active: int, epsilon: float, beta: float, size: int
) -> float:
    """h + c: half of the lead that drops an arm."""
    odds = active * epoch**2 / beta
    sampling = math.sqrt(math.log(8 * odds) / (2 * size))
    return sampling + math.log(4 * odds) / (size * epsilon)


class FastDpSe:
    """Plays DP-SE on every instance; the spec's mechanism must be ``dp-se``."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._spec = simulation.spec
        self._draws = CohortDraws(simulation.model, simulation.seed)
        self._accounts = Accounts(simulation)
        shape = (simulation.instances, self._spec.arms)
        self._active = np.ones(shape, dtype=np.bool_)
        self._eliminated = np.zeros(shape, dtype=np.int64)
        self._estimates = np.full(shape, 0.5)
        self._radii = np.full(shape, np.inf)

    def steps(self) -> Iterator[float]:
        """Play epoch after epoch until every instance is over."""
        accounts, epoch = self._accounts, 0
        while accounts.live.any():
            epoch += 1
            counts = self._active.sum(axis=1)
            for row in np.flatnonzero(accounts.live & (counts == 1)):
                winner = int(np.argmax(self._active[row]))
                accounts.close(row, "winner", {winner: accounts.remaining(row)})
            for count in sorted(set(counts[accounts.live].tolist())):
                rows = np.flatnonzero(accounts.live & (counts == count))
                self._play(rows.tolist(), epoch, count)
            accounts.checkpoint()
            yield accounts.part_done

    def result(self) -> SimulationResult:
        """Tell what is known so far."""
        return self._accounts.result(
            self._estimates,
            np.clip(self._estimates - self._radii, 0.0, 1.0),
            np.clip(self._estimates + self._radii, 0.0, 1.0),
            self._eliminated,
        )

    def _play(self, rows: list[int], epoch: int, count: int) -> None:
        epsilon = float(self._spec.epsilon)
        beta = float(self._spec.failure_probability)
        size = epoch_size(epoch, count, epsilon, beta)
        accounts, playing = self._accounts, np.zeros_like(self._active)
        for row in rows:
            if count * size > accounts.remaining(row):
                active = np.flatnonzero(self._active[row])
                left = in_blocks(active, size, accounts.remaining(row))
                accounts.close(row, "horizon", left)
            else:
                playing[row] = self._active[row]
        instances, arms = np.nonzero(playing)
        if not len(instances):
            return
        wrap = Shares(self._spec.failure_probability).wrap(epoch, self._spec.arms)
        cohort = self._spec.calibrated(size, size, wrap)
        totals = self._draws.totals(instances * self._spec.arms + arms, cohort)
        self._estimates[playing] = totals / (cohort.precision * size)
        radius = epoch_radius(epoch, count, epsilon, beta, size)
        self._radii[playing] = radius
        accounts.pull(instances, arms, size)
        best = np.where(playing, self._estimates, -np.inf).max(axis=1, keepdims=True)
        losers = playing & (best - self._estimates > 2 * radius)
        self._active &= ~losers
        self._eliminated[losers] = epoch
