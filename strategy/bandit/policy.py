"""What a bandit policy is: a pure, serialisable state machine.

*What cohorts do you want next?* → *here are the sums* → *new bounds, who is out, why.*
Successive elimination and the index policies stand behind this one interface; the
fast simulator, the local engine and the Flower strategy drive it unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import Any, Protocol

Arm = int


class Ending(StrEnum):
    """Why an experiment is over, as far as a policy knows."""

    WINNER = "winner"  # one arm is left
    EQUAL = "equal"  # the arms left are within the margin of each other
    FUTILE = "futile"  # none beats control by the margin
    HORIZON = "horizon"
    ROUNDS = "rounds"  # as many as were allowed
    USERS_EXHAUSTED = "users-exhausted"


USERS_EXHAUSTED = Ending.USERS_EXHAUSTED
DECIDED = (Ending.WINNER, Ending.EQUAL, Ending.FUTILE)


@dataclass(frozen=True, slots=True)
class CohortRequest:
    """`size` new users wanted for `arm` in batch `batch`.

    `wrap_probability` is what the policy's failure probability leaves for the sum of
    this cohort to exceed its modulus; the cohort must be calibrated with it.
    """

    batch: int
    arm: Arm
    size: int
    wrap_probability: Fraction


@dataclass(frozen=True, slots=True)
class CohortSum:
    """What came back for a request: Σx̂ + noise over the survivors, in units of 1/g.

    Attributes
    ----------
    batch, arm : of the request.
    cohort_size, honest_floor : n and h that noise and modulus were calibrated for.
    survivors : users in the sum.
    precision, total : g and the decoded integer; total / precision estimates the sum
        of the rewards.
    """

    batch: int
    arm: Arm
    cohort_size: int
    honest_floor: int
    survivors: int
    precision: int
    total: int


@dataclass(frozen=True, slots=True)
class EliminationReason:
    """Why the sums put an arm out: it trails arm `rival` by about `gap`.

    Attributes
    ----------
    rival : the arm that leads.
    gap : difference of the two estimates, in [0, 1], to four digits.
    chance : bound on the chance of such sums were the arm as good as any; None where a
        radius decided.
    radius : what the gap had to exceed; None where a test decided.
    """

    rival: Arm
    gap: float
    chance: float | None = None
    radius: float | None = None


@dataclass(frozen=True, slots=True)
class ArmView:
    """What is known of one arm now.

    Attributes
    ----------
    users : people in its sums.
    estimate : of its mean; None until it was heard.
    lower, upper : the interval that holds with all others.
    active : still in the race; else `eliminated_in` is the batch in which it fell.
    reason : why the sums put it out; None while it is active, or if it was retired.
    retired : taken out by hand, not by the sums.
    asked : people asked about it, in a sum or not. A run counts them in its journal.
    note : an operator's words for why it was retired.
    """

    arm: Arm
    users: int
    estimate: float | None
    lower: float
    upper: float
    active: bool
    eliminated_in: int | None
    reason: EliminationReason | None = None
    retired: bool = False
    asked: int = 0
    note: str = ""


class Policy(Protocol):
    """Drives one experiment; knows nothing of users, crypto or Flower."""

    def next_cohorts(self) -> Sequence[CohortRequest]:
        """Return cohorts wanted next; empty when the experiment is over."""
        ...

    def observe(self, outcomes: Sequence[CohortSum]) -> None:
        """Take the sums of all cohorts of the batch; update bounds and arms.

        An arm whose cohort was void is left out: it stays active, its users count as
        used, nothing is learnt about it in this batch.
        """
        ...

    def arms(self) -> Sequence[ArmView]:
        """Return every arm's estimate, interval and status."""
        ...

    @property
    def finished(self) -> str | None:
        """Why the experiment is over, or None.

        An `Ending`, or what `stop` said.
        """
        ...

    @property
    def users(self) -> int:
        """Users asked so far, void cohorts included."""
        ...

    def limit(self, users: int) -> None:
        """Take note that the next batch can ask no more than `users` users."""
        ...

    def stop(self, reason: str) -> None:
        """End it from outside: no users are left, or the operator said so."""
        ...

    def retire(self, arm: Arm, reason: str) -> None:
        """Take an arm out by hand, between two batches; it is never asked again.

        Refuses an arm that is not in the race, and the last one that is.
        """
        ...

    def assignment(self, users: int) -> Mapping[Arm, int]:
        """Which arms `users` further users should get who are not aggregated."""
        ...

    def state(self) -> Mapping[str, Any]:
        """JSON-ready state; `policy_from_state` restores it exactly."""
        ...
