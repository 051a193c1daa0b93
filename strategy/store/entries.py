"""What the journal keeps, as values: cohorts asked, cohorts ended, finished rounds.

A *round* is one turn of the policy: its wishes, their cohorts (with repeated attempts),
and the decision that followed. For successive elimination round and batch coincide.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

from wallflower.protocol.messages.port import NodeId
from wallflower.protocol.secure_sum.session import Finding

INVITED, SUMMED, VOID = "invited", "summed", "void"
DEALING = "deal-"  # how the ids of dealings begin


class Met(NamedTuple):
    """What a node said of its users.

    `left_out` counts those who cannot be asked on the run's terms, by the node, and
    whom this run has not asked as often as it may.
    """

    users: int
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class CohortTerms:
    """One attempt to fill one wish; `spec` is the `CohortSpec` every client gets."""

    cohort_id: str
    round_number: int
    batch: int
    arm: int
    attempt: int
    size: int
    spec: bytes


@dataclass(frozen=True, slots=True)
class CohortRecord(CohortTerms):
    """A cohort about to be asked: whom, and on what terms."""

    users: Mapping[NodeId, tuple[str, ...]]

    @classmethod
    def of(
        cls, terms: CohortTerms, users: Mapping[NodeId, tuple[str, ...]]
    ) -> CohortRecord:
        """Put users to the terms they were asked on."""
        facts = {one.name: getattr(terms, one.name) for one in fields(CohortTerms)}
        return cls(**facts, users=users)


@dataclass(frozen=True, slots=True)
class SumRecord:
    """A released sum.

    Attributes
    ----------
    released : Σ mod m as the secure sum gave it; None where the server adds noise
        itself (central model): the unnoised sum is never written down.
    total : the analyzer's integer, in units of 1/precision.
    survivors : users in the sum.
    nodes : nodes in the sum.
    losses : users who were asked and are not in the sum, by reason.
    """

    cohort_id: str
    released: int | None
    modulus: int
    total: int
    precision: int
    survivors: int
    nodes: tuple[NodeId, ...]
    losses: Mapping[str, int] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True)
class StoredCohort(CohortTerms):
    """A cohort as the journal has it: asked, and how it ended.

    Cohorts with the same `draw` were drawn as one set of people, who were then assigned
    to their arms at random. `losses` counts by reason the users who were asked and are
    in no sum.
    """

    draw: int
    state: str
    reason: str
    losses: Mapping[str, int]
    result: SumRecord | None


@dataclass(frozen=True, slots=True)
class DealingRecord:
    """A dealing of a key for sealed sums: who made it, who holds it, or why not.

    `reason` is empty for a key; `findings` say who broke the rules.
    """

    dealing_id: str
    nodes: int  # that were there to deal
    reason: str
    dealers: tuple[NodeId, ...]
    members: tuple[NodeId, ...]
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True)
class Retirement:
    """An arm that somebody took out by hand, from round `round_number` on."""

    arm: int
    round_number: int
    reason: str


@dataclass(frozen=True, slots=True)
class RoundRecord:
    """A finished round: the decision and the state after it.

    `views` are the arms' `ArmView`s as mappings, `spent` the guarantee used up so far,
    `finished` the policy's reason to stop or None.
    """

    number: int
    views: tuple[Mapping[str, Any], ...]
    policy_state: Mapping[str, Any]
    spent: Mapping[str, Any]
    finished: str | None
