"""Users, regret and checkpoints of many instances, as arrays."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from wallflower.regret.simulation import (
    Checkpoint,
    Integers,
    Simulation,
    SimulationResult,
)


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
        for arm, users in assignment.items():
            self.pulls[instance, arm] += users
        self.live[instance] = False
        self.finished[instance] = reason

    def remaining(self, instance: int | np.intp) -> int:
        """Users of the horizon that are left."""
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
            batches=self.batches,
            trail=tuple(self.trail),
        )
