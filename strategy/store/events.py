"""What an orchestrator tells while it works: for live views, logs and metrics.

Events hold names, counts and bounds; never a reward, a share or a single user's value.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

from wallflower.protocol.secure_sum.session import Finding
from wallflower.strategy.bandit.policy import ArmView


@dataclass(frozen=True, slots=True)
class RunStarted:
    """Nodes have described their users; the first round begins.

    `head` is that of the journal's chain; in `test_mode` nobody is protected. Where
    people are `arriving` the nodes are trustees, and users of a round are its seats.
    """

    run_id: str
    arms: tuple[str, ...]
    nodes: int
    population: int
    horizon: int
    rounds_done: int
    head: str = ""
    test_mode: bool = False
    arriving: bool = False


@dataclass(frozen=True, slots=True)
class WaitingForNodes:
    """Too few nodes are there for the next cohorts, but enough are known.

    `available` users of the nodes there may be asked, `wanted` are needed (or more,
    where few nodes must carry the noise). After `patience_s` the run stops, resumable.
    `why` counts nodes that are there and cannot work, by the reason they give.
    """

    present: int
    known: int
    wanted: int
    available: int
    patience_s: float
    why: str = ""


@dataclass(frozen=True, slots=True)
class TermsRefused:
    """Some nodes do not agree to the terms; the run goes on without them.

    `text` says which nodes, which term, and what could be changed.
    """

    nodes: int
    known: int
    text: str


@dataclass(frozen=True, slots=True)
class KeyGenerated:
    """A committee of `nodes` nodes has, or has not, made a key for sealed sums.

    `void` says why not; `findings` who caused that, and who broke the rules.
    """

    dealing_id: str
    nodes: int
    dealers: int
    members: int
    void: str | None
    seconds: float
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True)
class RoundStarted:
    """The policy has requested cohorts; `users` are asked in all."""

    number: int
    batch: int
    arms: tuple[int, ...]
    users: int


@dataclass(frozen=True, slots=True)
class CohortAsked:
    """One attempt to fill one request was written down and is about to be sent."""

    cohort_id: str
    number: int
    batch: int
    arm: int
    attempt: int
    users: int
    nodes: int


@dataclass(frozen=True, slots=True)
class CohortProgress:
    """How far a cohort is: nodes heard in the stage it is in."""

    cohort_id: str
    arm: int
    stage: str
    heard: int
    nodes: int


@dataclass(frozen=True, slots=True)
class CohortEnded:
    """A sum was released, or none: then `void` says why.

    `lost` are the users asked who are not in the sum, `losses` counts them by reason;
    `refusals` counts the reasons nodes gave or were given. `returned` users never saw
    the arm and may be asked again. `findings` say who caused a void cohort, and who
    broke the rules in any.
    """

    cohort_id: str
    arm: int
    attempt: int
    survivors: int
    lost: int
    void: str | None
    refusals: tuple[tuple[str, int], ...]
    seconds: float
    losses: tuple[tuple[str, int], ...] = ()
    returned: int = 0
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True)
class RoundFinished:
    """Bounds and decisions after a round; it is in the journal, up to `head`."""

    number: int
    views: tuple[ArmView, ...]
    invited: int
    answered: int
    lost: int
    finished: str | None
    seconds: float
    head: str = ""


@dataclass(frozen=True, slots=True)
class ArmRetired:
    """Somebody took an arm out by hand, from round `number` on; the journal has it."""

    arm: int
    number: int
    reason: str
    views: tuple[ArmView, ...]
    finished: str | None
    head: str = ""


@dataclass(frozen=True, slots=True)
class RetirementRefused:
    """An arm was to be retired and could not be: `text` says why."""

    arm: int
    text: str


Event: TypeAlias = (
    RunStarted
    | WaitingForNodes
    | TermsRefused
    | KeyGenerated
    | RoundStarted
    | CohortAsked
    | CohortProgress
    | CohortEnded
    | RoundFinished
    | ArmRetired
    | RetirementRefused
)
Listen: TypeAlias = Callable[[Event], Awaitable[None]]


async def ignore(event: Event) -> None:
    """Listen to nothing."""
