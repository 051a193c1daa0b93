"""Why users who were asked are in no sum: every one of them counted under one reason.

Nodes say how many of their users were not shown the arm, and why (no budget left);
whoever was shown it is in the node's answer, so that no count follows from an outcome.
The secure sum knows why whole nodes are out; the rest did not answer, or answered in a
cohort that was given up. Never who: only how many.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from wallflower.protocol.messages.port import BEFORE_SHOWN, NodeId
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


def losses(
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
        said = reported.by_node.get(node_id, _NOTHING)
        if said:
            counts.update(said)
        if node_id in within:
            continue
        given_up = summed is None and node_id not in reported.silent
        otherwise = COHORT_VOID if given_up else NO_ANSWER
        counts[out.get(node_id, otherwise)] += len(users) - said.total()
    return _fitted(counts, sum(map(len, asked.values())) - survivors)


def _fitted(counts: Counter[str], lost: int) -> Mapping[str, int]:
    """Make the counts add up, whatever a node claimed."""
    surplus = counts.total() - lost
    if surplus < 0:
        counts[UNSTATED] -= surplus
    for reason in sorted(counts):
        taken = min(counts[reason], max(0, surplus))
        counts[reason] -= taken
        surplus -= taken
    return dict(sorted((+counts).items()))


def in_words(counts: Mapping[str, int]) -> str:
    """List reasons, the most frequent first.

    Examples
    --------
    >>> in_words({"no-answer": 3, "budget-exceeded": 1200})
    '1,200 budget-exceeded, 3 no-answer'
    """
    most_first = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{users:,} {reason}" for reason, users in most_first)
