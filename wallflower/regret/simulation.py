"""What is simulated, and what comes out: the shared words of all engines.

An engine is stepped batch by batch and can be asked for its result at any time, so that
an interrupted simulation still tells what is known so far.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from wallflower.protocol.errors import InputError
from wallflower.protocol.rewards.models import RewardModel
from wallflower.strategy.bandit.policy import DECIDED
from wallflower.strategy.bandit.spec import PolicySpec

Doubles = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Simulation:
    """`instances` independent experiments under one policy.

    The reward model has a row of arms per instance: arm a of instance i is its arm
    i·K + a. All randomness comes from `seed`: it decides noise too, which is fine
    because nobody's reward is behind it.
    """

    spec: PolicySpec
    model: RewardModel
    instances: int
    seed: int

    def __post_init__(self) -> None:
        if self.seed < 0:
            raise InputError("seed", self.seed, "a whole number of at least 0")
        if self.model.means.size != self.instances * self.spec.arms:
            raise InputError(
                "means",
                f"a list of {self.model.means.size}",
                f"{self.spec.arms} arms for each of {self.instances} instances",
            )

    @property
    def means(self) -> Doubles:
        """True means, a row per instance."""
        return self.model.means.reshape(self.instances, self.spec.arms)

    @property
    def gaps(self) -> Doubles:
        """Distance of every arm's mean to its instance's best."""
        return np.asarray(self.means.max(axis=1, keepdims=True) - self.means)


@dataclass(frozen=True)
class Checkpoint:
    """Users asked and pseudo-regret of every instance after a batch."""

    users: Integers
    regret: Doubles


@dataclass(frozen=True)
class SimulationResult:
    """What is known at the end, or where a simulation was interrupted.

    Rows are instances, columns arms. `eliminated_in` is 0 while an arm is active;
    `pulls` counts every user, aggregated or not; `complete` is False for an instance
    that was interrupted; `asked` counts the users whose rewards were summed, in
    `rounds`. `trail` goes from the first batch to the last.
    """

    simulation: Simulation
    regret: Doubles
    pulls: Integers
    estimates: Doubles
    lower: Doubles
    upper: Doubles
    eliminated_in: Integers
    finished: tuple[str, ...]
    complete: NDArray[np.bool_]
    asked: Integers
    rounds: Integers
    batches: int
    trail: tuple[Checkpoint, ...]

    @property
    def users(self) -> Integers:
        """Users asked per instance."""
        return np.asarray(self.pulls.sum(axis=1))

    @property
    def decided(self) -> NDArray[np.bool_]:
        """Instances that ended with one arm left, or by the margin."""
        return np.array([reason in DECIDED for reason in self.finished])

    @property
    def best_dropped(self) -> NDArray[np.bool_]:
        """Instances in which an arm of the largest mean was eliminated."""
        best = self.simulation.gaps == 0
        return np.asarray(((self.eliminated_in > 0) & best).any(axis=1))

    def regret_at(self, times: Doubles) -> Doubles:
        """Pseudo-regret of every instance after `times` users, linear in a batch."""
        rows = np.empty((self.simulation.instances, len(times)))
        for row in range(self.simulation.instances):
            users = [0.0, *(float(point.users[row]) for point in self.trail)]
            regret = [0.0, *(float(point.regret[row]) for point in self.trail)]
            rows[row] = np.interp(times, users, regret)
        return rows


class Engine(Protocol):
    """Something that plays a simulation."""

    def steps(self) -> Iterator[float]:
        """Play on; after each step give the part of the horizon that is behind."""
        ...

    def result(self) -> SimulationResult:
        """Return what is known so far."""
        ...


def run(engine: Engine) -> SimulationResult:
    """Play a simulation to its end."""
    for _ in engine.steps():
        pass
    return engine.result()


class Accounts:
    """Books who pulled what; pseudo-regret follows from it."""

    def __init__(self, simulation: Simulation) -> None:
        shape = (simulation.instances, simulation.spec.arms)
        self.simulation = simulation
        self.pulls = np.zeros(shape, dtype=np.int64)
        self.live = np.ones(simulation.instances, dtype=np.bool_)
        self.finished = [""] * simulation.instances
        self.trail: list[Checkpoint] = []
        self.batches = 0
        # Users asked when an instance ended, before the rest got the leader.
        self.asked = np.zeros(simulation.instances, dtype=np.int64)
        self._rounds = np.zeros(simulation.instances, dtype=np.int64)
        self._gaps = simulation.gaps

    @property
    def users(self) -> Integers:
        """Users asked so far, per instance."""
        return np.asarray(self.pulls.sum(axis=1))

    @property
    def regret(self) -> NDArray[np.float64]:
        """Pseudo-regret so far, per instance."""
        return np.asarray((self.pulls * self._gaps).sum(axis=1))

    @property
    def part_done(self) -> float:
        """Part of all instances' horizons that is behind."""
        whole = self.simulation.spec.horizon * self.simulation.instances
        return min(1.0, float(self.pulls.sum()) / whole)

    def pull(
        self, instances: NDArray[np.intp], arms: Integers, size: int | Integers
    ) -> None:
        """Book `size` users on each (instance, arm) of two index rows."""
        self.pulls[instances, arms] += size

    def checkpoint(self) -> None:
        """Remember where every instance stands."""
        self.batches += 1
        self.trail.append(Checkpoint(self.users, self.regret))

    def close(
        self, instance: int | np.intp, reason: str, assignment: dict[int, int]
    ) -> None:
        """End an instance; `assignment` says which arms the remaining users got."""
        self.asked[instance] = self.pulls[instance].sum()
        self._rounds[instance] = self.batches
        for arm, users in assignment.items():
            self.pulls[instance, arm] += users
        self.live[instance] = False
        self.finished[instance] = reason

    def remaining(self, instance: int | np.intp) -> int:
        """Return users of the horizon that are left."""
        used = int(self.pulls[instance].sum())
        return self.simulation.spec.horizon - used

    def result(
        self,
        estimates: NDArray[np.float64],
        lower: NDArray[np.float64],
        upper: NDArray[np.float64],
        eliminated_in: Integers,
    ) -> SimulationResult:
        """Sum up; what is shown of a mean lies in [0, 1], as rewards do."""
        return SimulationResult(
            simulation=self.simulation,
            regret=self.regret,
            pulls=self.pulls.copy(),
            estimates=np.clip(estimates, 0.0, 1.0),
            lower=lower,
            upper=upper,
            eliminated_in=eliminated_in.copy(),
            finished=tuple(reason or "interrupted" for reason in self.finished),
            complete=~self.live,
            asked=np.where(self.live, self.users, self.asked),
            rounds=np.where(self.live, self.batches, self._rounds),
            batches=self.batches,
            trail=tuple(self.trail),
        )
