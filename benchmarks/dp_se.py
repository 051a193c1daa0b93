"""The peer DP-SE of Sajed and Sheffet (2019), on many instances at once.

Central model: a trusted server sees every reward and adds Laplace noise of scale 1/ε to
the sum, here discrete Laplace noise on the grid 1/1024. In epoch e, with D = 2^−e and
|S| active arms, each gets R = 1 + ⌈max(32 ln(8|S|e²/β)/D², 8 ln(4|S|e²/β)/(Dε))⌉ new
pulls. An arm is dropped when it trails by more than 2h + 2c.

Deviation: the published simulation adds one Laplace draw to all arms, which cancels in
every comparison; here each arm gets its own.

`SlippedDpSe` is DP-SE as the code published with Azize et al. 2023 plays it, with one
slip: it divides the sum of an epoch by the pulls of all epochs so far, which shrinks
every gap. With the slip, ours must give the figures of that code.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from wallflower.protocol.noise.laplace import DiscreteLaplace
from wallflower.protocol.privacy.mechanism import CohortMechanism
from wallflower.protocol.privacy.trusted import TrustedCohort
from wallflower.regret.draws import CohortDraws
from wallflower.regret.elimination import assign_in_blocks
from wallflower.regret.simulation import (
    Accounts,
    Integers,
    Simulation,
    SimulationResult,
)
from wallflower.strategy.bandit.failure_budget import Shares

# Rewards are not rounded in the original; this adds 2⁻²² to their variance at most.
_PRECISION = 1024


def epoch_size(epoch: int, active: int, epsilon: float, beta: float) -> int:
    """Return R, the new pulls of each active arm in an epoch."""
    odds = active * epoch**2 / beta
    sampling = 32 * math.log(8 * odds) * 4.0**epoch
    privacy = 8 * math.log(4 * odds) * 2.0**epoch / epsilon
    return 1 + math.ceil(max(sampling, privacy))


def epoch_radius(
    epoch: int, active: int, epsilon: float, beta: float, size: int
) -> float:
    """Return h + c, half of the lead that drops an arm."""
    odds = active * epoch**2 / beta
    sampling = math.sqrt(math.log(8 * odds) / (2 * size))
    return sampling + math.log(4 * odds) / (size * epsilon)


def calibrate_epoch(size: int, epsilon: Fraction, wrap: Fraction) -> TrustedCohort:
    """Return a cohort of an epoch: bare sums and one noise of the server."""
    bound = DiscreteLaplace(_PRECISION / epsilon).two_sided_bound(wrap)
    return TrustedCohort.from_bound(size, size, _PRECISION, bound, epsilon=epsilon)


class FastDpSe:
    """Plays DP-SE on every instance at the ε and p of its spec."""

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
        """Return what is known so far."""
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
                left = assign_in_blocks(active, size, accounts.remaining(row))
                accounts.close(row, "horizon", left)
            else:
                playing[row] = self._active[row]
        instances, arms = np.nonzero(playing)
        if not len(instances):
            return
        wrap = Shares(self._spec.failure_probability).wrap(epoch, self._spec.arms)
        cohort = calibrate_epoch(size, self._spec.epsilon, wrap)
        totals = self._draws.totals(instances * self._spec.arms + arms, cohort)
        self._estimates[playing] = totals / (cohort.precision * size)
        radius = epoch_radius(epoch, count, epsilon, beta, size)
        self._radii[playing] = radius
        accounts.pull(instances, arms, size)
        best = np.where(playing, self._estimates, -np.inf).max(axis=1, keepdims=True)
        losers = playing & (best - self._estimates > 2 * radius)
        self._active &= ~losers
        self._eliminated[losers] = epoch


class SlippedDpSe(FastDpSe):
    """Plays DP-SE on sums that are too small by the slip."""

    def __init__(self, simulation: Simulation) -> None:
        super().__init__(simulation)
        self._draws = _SlippedDraws(simulation, self._accounts)


class _SlippedDraws(CohortDraws):
    def __init__(self, simulation: Simulation, accounts: Accounts) -> None:
        super().__init__(simulation.model, simulation.seed)
        self._accounts = accounts

    def totals(
        self,
        arms: NDArray[np.intp],
        cohort: CohortMechanism,
        survivors: int | None = None,
    ) -> Integers:
        sums = super().totals(arms, cohort, survivors)
        before = self._accounts.pulls.ravel()[arms]
        part = cohort.cohort_size / (cohort.cohort_size + before)
        return np.asarray(np.rint(sums * part), dtype=np.int64)
