"""Why users who were asked are in no sum, and who caused a void cohort.

Every lost user is counted under one reason. Nodes say how many of their users were not
shown the arm, and why (no budget left). Whoever was shown it is in the node's answer,
so that no count follows from an outcome. The secure sum knows why whole nodes are out.
The rest did not answer, or answered in a cohort that was given up. Only counts are
kept, never names of users.

A node that sent what no honest node sends is named for it. A node that was silent or
refused is named as out. Where the same numbers could come from one node or from
another, both are suspects and neither is guilty: a contributor whose shares lie on no
polynomial makes a member's honest tally look wrong.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from wallflower.protocol.messages.port import BEFORE_SHOWN, NodeId
from wallflower.protocol.secure_sum.session import (
    OUT,
    SENT,
    SERVER,
    SUSPECT,
    UNKNOWN,
    Finding,
)
from wallflower.protocol.wire.node_pb2 import LostUsers

NO_ANSWER = "no-answer"
COHORT_VOID = "cohort-void"  # answered, but the cohort gave no sum
UNSTATED = "unstated"  # a node left users out and did not say why
_NOTHING: Counter[str] = Counter()


@dataclass(slots=True)
class Reported:
    """What the nodes of one cohort were asked and said so far."""

    by_node: dict[NodeId, Counter[str]] = field(default_factory=dict)
    silent: set[NodeId] = field(default_factory=set)

    def hear(self, node_id: NodeId, lost: Sequence[LostUsers], users: int) -> None:
        """Take a node's counts, never for more users than it was asked for.

        A reason that does not exist before an arm is shown is not kept.
        """
        if not lost:
            return
        counts, left = Counter[str](), users
        for one in lost:
            known = one.reason in BEFORE_SHOWN
            counts[one.reason if known else UNSTATED] += min(left, one.users)
            left -= min(left, one.users)
        self.by_node[node_id] = +counts


def count_losses(
    asked: Mapping[NodeId, tuple[str, ...]],
    summed: Sequence[NodeId] | None,
    survivors: int,
    out: Mapping[NodeId, str],
    reported: Reported,
) -> Mapping[str, int]:
    """Count all users who were asked and are not in the sum, by reason.

    Parameters
    ----------
    asked : Mapping[NodeId, tuple[str, ...]]
        The cohort's users by node.
    summed : Sequence[NodeId], optional
        The nodes in the sum; None where there is no sum.
    survivors : int
        The users in it.
    out : Mapping[NodeId, str]
        Why nodes are out, as far as the secure sum knows.
    reported : Reported
        What nodes said themselves.
    """
    within = set(summed or ())
    counts: Counter[str] = Counter()
    for node_id, users in asked.items():
        reported_losses = reported.by_node.get(node_id, _NOTHING)
        if reported_losses:
            counts.update(reported_losses)
        if node_id in within:
            continue
        given_up = summed is None and node_id not in reported.silent
        otherwise = COHORT_VOID if given_up else NO_ANSWER
        counts[out.get(node_id, otherwise)] += len(users) - reported_losses.total()
    return _fit_counts(counts, sum(map(len, asked.values())) - survivors)


def _fit_counts(counts: Counter[str], lost: int) -> Mapping[str, int]:
    """Make the counts add up, whatever a node claimed."""
    surplus = counts.total() - lost
    if surplus < 0:
        counts[UNSTATED] -= surplus
    for reason in sorted(counts):
        taken = min(counts[reason], max(0, surplus))
        counts[reason] -= taken
        surplus -= taken
    return dict(sorted((+counts).items()))


def describe_losses(counts: Mapping[str, int]) -> str:
    """List reasons, the most frequent first.

    Examples
    --------
    >>> describe_losses({"no-answer": 3, "budget-exceeded": 1200})
    '1,200 budget-exceeded, 3 no-answer'
    """
    most_first = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{users:,} {reason}" for reason, users in most_first)


_MOST_NAMED = 5
_LEADS = {
    SENT: "broke the rules",
    SUSPECT: "it or another, which cannot be known",
    OUT: "not there",
}


def select_findings(
    void: str | None, findings: Sequence[Finding]
) -> tuple[Finding, ...]:
    """Return what to write down: all where it came to nothing, else broken rules alone.

    `void` is the code of a Void, None for a sum or a key.
    """
    if void is None:
        return tuple(one for one in findings if one.kind in (SENT, SUSPECT))
    return tuple(findings) or (Finding("", UNKNOWN, void),)


def describe_findings(findings: Sequence[Finding]) -> str:
    """Say who caused it.

    Examples
    --------
    >>> late = Finding("b", "out", "late")
    >>> describe_findings([Finding("a", "sent", "unusable-key"), late])
    'broke the rules: a (unusable-key); not there: b (late)'
    >>> describe_findings([Finding("", "unknown", "inconsistent-tallies")])
    'who caused it cannot be known (inconsistent-tallies)'
    """
    parts = []
    for kind, lead in _LEADS.items():
        names = [f"{one.party} ({one.word})" for one in findings if one.kind == kind]
        if names:
            more = len(names) - _MOST_NAMED
            rest = f" and {more} more" if more > 0 else ""
            parts.append(f"{lead}: {', '.join(names[:_MOST_NAMED])}{rest}")
    parts += [
        f"the server itself ({one.word})" for one in findings if one.kind == SERVER
    ]
    unknown = [one.word for one in findings if one.kind == UNKNOWN]
    if unknown:
        parts.append(f"who caused it cannot be known ({unknown[0]})")
    return "; ".join(parts)
