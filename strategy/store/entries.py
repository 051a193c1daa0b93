"""What the journal keeps, as values: cohorts asked, cohorts ended, finished rounds.

A *round* is one turn of the policy: its requests, their cohorts (with repeated
attempts), and the decision that followed. For successive elimination round and batch
coincide.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from typing import Any, NamedTuple

from wallflower.protocol.messages.port import NodeId
from wallflower.protocol.privacy.sentences import (
    SENTENCE_DELTA,
    CohortCondition,
    KeyHolders,
)
from wallflower.protocol.secure_sum.session import Finding
from wallflower.strategy.bandit.policy import ArmView

# The kinds of entries in the chain; a cohort's state is the last of its own three.
FOUNDED, INVITED, VOID, SUMMED, ROUND = "founded", "invited", "void", "summed", "round"
DEALT = "dealt"  # how a key for sealed sums was made, or why not
MET = "met"  # nodes that said who lives there, and how many cannot be asked
RETURNED = "returned"  # users of a cohort whose node refused before anybody saw the arm
RETIRED = "retired"  # an arm, by hand; its subject is the arm
# The subject of these is the round under way; they have no rows.
RESUMED, WAITING, PAUSED = "resumed", "waiting", "paused"
OPENED = "opened"  # seats of cohorts, as one deck; its subject is the deck's number
CLOSED = "closed"  # seats of a cohort: who had them, and who answered
ARCHIVED = "archived"  # names were removed; it holds what is left in their place
LIMITED = "limited"  # its subject has the round and the users it may ask, no rows

# The kinds whose rows have names of nodes or people.
NAMING = (INVITED, SUMMED, VOID, RETURNED, MET, DEALT, CLOSED)

DEALING = "deal-"  # how the ids of dealings begin


class Met(NamedTuple):
    """What a node said of its users.

    `left_out` counts those who cannot be asked on the run's terms, by the node, and
    whom this run has not asked as often as it may.
    """

    users: int
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class Askable:
    """People who can be asked once more, as their nodes said.

    Nodes leave out whoever has no budget left for the run's terms, or took part as
    often as they agreed to. How much anybody has left is not known to the server.

    Attributes
    ----------
    people : everybody whom the nodes described.
    left_out : of them whom their node leaves out, and whom this run may ask otherwise.
    able : of them who can be asked.
    """

    people: int
    left_out: int
    able: int

    @classmethod
    def count(cls, met: Mapping[str, Met], asked_fully: int) -> Askable:
        """Count who of the nodes known can be asked; so many were asked enough."""
        people = sum(node.users for node in met.values())
        left_out = sum(node.left_out for node in met.values())
        return cls(people, left_out, max(0, people - left_out - asked_fully))

    def describe(self) -> str:
        """Return how many can be asked, and why others cannot."""
        text = f"{self.able:,} of {self.people:,} people can still be asked under "
        if not self.left_out:
            return f"{text}these terms."
        return (
            f"{text}these terms; {self.left_out:,} are left out by their nodes: their "
            "budget does not allow it."
        )


# What an operator can do when too few can be asked.
BUDGET_ADVICE = (
    "Budgets are for ever: begin a run with a smaller privacy.epsilon or with other "
    "people, or let the nodes' policies allow a larger total"
)


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
class CohortRecord:
    """One attempt to fill one request: whom it asks, on what terms, how it ended.

    `spec` is the `CohortSpec` that every client gets. `users` are by node; they are not
    read back with the cohort (`Journal.invitations` has them). Cohorts with the same
    `draw` were drawn as one set of people, who were then assigned to their arms at
    random. `losses` counts by reason the users who were asked and are in no sum.
    """

    cohort_id: str
    round_number: int
    batch: int
    arm: int
    attempt: int
    size: int
    spec: bytes
    users: Mapping[NodeId, tuple[str, ...]] = field(default_factory=dict)
    draw: int = 0
    state: str = INVITED
    reason: str = ""
    losses: Mapping[str, int] = field(default_factory=dict)
    result: SumRecord | None = None


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
class PrivacySpend:
    """What the busiest person asked so far may have spent at most.

    Attributes
    ----------
    kind : of the guarantee (`protocol.privacy.guarantee`); ``none`` in test mode.
    participations : of the busiest person.
    epsilon : of one cohort, the largest of all.
    total_epsilon : the exact sum of pure guarantees; None for other kinds.
    approximate_epsilon : of everything, at `privacy_delta`; rounded up, as text.
    trust : who must be honest.
    conditions : the cohorts on whose honesty it rests.
    corrupt, keys : of sealed sums, the share of colluding nodes and among whom keys
        were dealt; None for other back-ends.
    truncation_delta : what proofs of range add to δ.
    mixing_delta : what mixing adds to δ.
    sentence : a warning that stands instead of a promise.
    """

    kind: str = "none"
    participations: int = 0
    epsilon: Fraction | None = None
    total_epsilon: Fraction | None = None
    approximate_epsilon: str | None = None
    privacy_delta: float = SENTENCE_DELTA
    trust: str = ""
    conditions: tuple[CohortCondition, ...] = ()
    corrupt: Fraction | None = None
    keys: tuple[KeyHolders, ...] | None = None
    truncation_delta: Fraction = Fraction(0)
    mixing_delta: Fraction = Fraction(0)
    sentence: str = ""

    @property
    def own_delta(self) -> Fraction:
        """The δ that comes on top of any at which an ε was converted."""
        return self.truncation_delta + self.mixing_delta

    def as_json(self) -> dict[str, Any]:
        """Return JSON types; what does not apply is left out."""
        values: dict[str, Any] = {
            "kind": self.kind,
            "epsilon": None if self.epsilon is None else str(self.epsilon),
            "participations": self.participations,
            "total-epsilon": (
                None if self.total_epsilon is None else str(self.total_epsilon)
            ),
            "approximate-epsilon": self.approximate_epsilon,
            "privacy-delta": self.privacy_delta,
            "trust": self.trust,
            "conditions": [asdict(condition) for condition in self.conditions],
        }
        if self.keys is not None:
            values["corrupt"] = str(self.corrupt or 0)
            values["keys"] = [asdict(holders) for holders in self.keys]
            values["truncation-delta"] = str(self.truncation_delta)
        if self.mixing_delta:
            values["mixing-delta"] = str(self.mixing_delta)
        if self.sentence:
            values["sentence"] = self.sentence
        return values

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> PrivacySpend:
        """Read back what `as_json` wrote."""
        keys = values.get("keys")
        return cls(
            kind=values["kind"],
            participations=values["participations"],
            epsilon=_read_fraction(values["epsilon"]),
            total_epsilon=_read_fraction(values["total-epsilon"]),
            approximate_epsilon=values["approximate-epsilon"],
            privacy_delta=values["privacy-delta"],
            trust=values["trust"],
            conditions=tuple(
                CohortCondition(**condition) for condition in values["conditions"]
            ),
            corrupt=_read_fraction(values.get("corrupt")),
            keys=None if keys is None else tuple(KeyHolders(**one) for one in keys),
            truncation_delta=Fraction(values.get("truncation-delta", 0)),
            mixing_delta=Fraction(values.get("mixing-delta", 0)),
            sentence=values.get("sentence", ""),
        )


def _read_fraction(text: str | None) -> Fraction | None:
    return None if text is None else Fraction(text)


@dataclass(frozen=True, slots=True)
class RoundRecord:
    """A finished round: the decision and the state after it.

    `views` are the arms as they stand, `spent` the guarantee used up so far,
    `finished` the policy's reason to stop or None.
    """

    number: int
    views: tuple[ArmView, ...]
    policy_state: Mapping[str, Any]
    spent: PrivacySpend
    finished: str | None
