"""User by user: the oracle that the fast engine is tested against.

Every user draws a reward, runs the real randomizer, and the sum mod m goes through the
real analyzer to the real policy. O(T); the secure sum itself, which only adds mod m,
is the one part that is not run here. `AnyPolicy` draws the sum of a cohort instead,
which needs nothing but the policy.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from wallflower.clients.node.randomizer import encode_many, exact_sum
from wallflower.protocol.noise.bits import SeededBits
from wallflower.protocol.privacy.mechanism import CohortMechanism
from wallflower.regret.draws import CohortDraws
from wallflower.regret.simulation import Accounts, Simulation, SimulationResult
from wallflower.strategy.bandit.policies import build_policy
from wallflower.strategy.bandit.policy import CohortRequest, CohortSum, Policy
from wallflower.strategy.run.analyzer import analyze

# Users between two steps, so that an interruption is heard soon.
_CHUNK = 100_000


class UsersEngine:
    """Plays every instance of a simulation in turn, one user at a time."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._spec = simulation.spec.resolved()
        self._accounts = Accounts(simulation)
        self._generator = np.random.default_rng([simulation.seed, 2])
        self._bits = SeededBits.derived(simulation.seed, "users engine")
        self._policies: list[Policy] = [
            build_policy(self._spec) for _ in range(simulation.instances)
        ]

    def steps(self) -> Iterator[float]:
        """Play instance after instance."""
        accounts = self._accounts
        for row, policy in enumerate(self._policies):
            while next_cohorts := policy.next_cohorts():
                outcomes = []
                for cohort_request in next_cohorts:
                    for outcome in self._cohort(row, cohort_request):
                        if outcome is None:
                            yield accounts.part_done
                        else:
                            outcomes.append(outcome)
                policy.observe(outcomes)
                rows = np.full(len(next_cohorts), row)
                arms = np.array([cohort_request.arm for cohort_request in next_cohorts])
                accounts.pull(
                    rows,
                    arms,
                    np.array([cohort_request.size for cohort_request in next_cohorts]),
                )
                accounts.checkpoint()
            left = policy.assignment(accounts.remaining(row))
            accounts.close(row, policy.finished or "", dict(left))
            accounts.checkpoint()
            yield accounts.part_done

    def result(self) -> SimulationResult:
        """Return what is known so far."""
        views = [policy.arms() for policy in self._policies]
        estimates = np.array(
            [[0.5 if v.estimate is None else v.estimate for v in row] for row in views]
        )
        eliminated = np.array([[v.eliminated_in or 0 for v in row] for row in views])
        lower = np.array([[v.lower for v in row] for row in views])
        upper = np.array([[v.upper for v in row] for row in views])
        return self._accounts.result(estimates, lower, upper, eliminated)

    def _cohort(
        self, row: int, cohort_request: CohortRequest
    ) -> Iterator[CohortSum | None]:
        """Ask a cohort; None after each chunk of users, the outcome at the end."""
        cohort = self._calibrate(cohort_request)
        arm = row * self._spec.arms + cohort_request.arm
        total, asked = 0, 0
        while asked < cohort_request.size:
            count = min(_CHUNK, cohort_request.size - asked)
            total += self._chunk(arm, count, cohort)
            asked += count
            yield None
        decoded = analyze(cohort, total % cohort.modulus, bits=self._bits)
        yield self._outcome(cohort_request, cohort, decoded)

    def _calibrate(self, cohort_request: CohortRequest) -> CohortMechanism:
        floor = self._spec.floor(cohort_request.size)
        return self._spec.calibrated(
            cohort_request.size, floor, cohort_request.wrap_probability
        )

    def _outcome(
        self, cohort_request: CohortRequest, cohort: CohortMechanism, total: int
    ) -> CohortSum:
        """Everybody answered."""
        return CohortSum(
            batch=cohort_request.batch,
            arm=cohort_request.arm,
            cohort_size=cohort.cohort_size,
            honest_floor=cohort.honest_floor,
            survivors=cohort.cohort_size,
            precision=cohort.precision,
            total=total,
        )

    def _chunk(self, arm: int, count: int, cohort: CohortMechanism) -> int:
        """Sum of y = (x̂ + η) mod m over `count` users, each with their own draw."""
        rewards = self._simulation.model.sample(arm, count, self._generator)
        values = encode_many(rewards, cohort.precision, self._bits)
        noise = cohort.user_noise()
        if noise is not None:
            values = values + noise.sample(count, self._bits)
        return exact_sum(values % cohort.modulus)


class AnyPolicy(UsersEngine):
    """Asks the real policy, and draws the sums of its cohorts."""

    def __init__(self, simulation: Simulation) -> None:
        super().__init__(simulation)
        self._draws = CohortDraws(simulation.model, simulation.seed)

    def _cohort(
        self, row: int, cohort_request: CohortRequest
    ) -> Iterator[CohortSum | None]:
        cohort = self._calibrate(cohort_request)
        arm = np.array([row * self._spec.arms + cohort_request.arm])
        (total,) = self._draws.totals(arm, cohort).tolist()
        yield self._outcome(cohort_request, cohort, total)
