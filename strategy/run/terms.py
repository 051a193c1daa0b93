"""Ask nodes whether their users agree to a cohort's terms, before anybody is invited.

A node refuses by its users' policy, and will refuse the same terms again: inviting its
users would use them up for nothing. What a node accepted stands for every later cohort
on the same or better terms, so that a round costs no message more than its sums.
"""

from __future__ import annotations

import secrets
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from fractions import Fraction

from wallflower.protocol.errors import ProtocolError, UnavailableError
from wallflower.protocol.messages.port import NodeId, NodeTransport
from wallflower.protocol.wire.cohort_pb2 import CohortSpec
from wallflower.protocol.wire.node_pb2 import Accepted
from wallflower.strategy.run.driver import Refusal
from wallflower.strategy.run.requests import offer_reply, offer_requests

NO_ANSWER = "no-answer"
_MOST_REASONS = 5  # said at once; nodes may invent any number
# What an operator can change for each refusal.
_CHANGES = {
    "arm-not-allowed": "experiment.arms",
    "mechanism-not-allowed": "privacy.mechanism",
    "backend-not-allowed": "secure-sum.backend",
    "epsilon-too-large": "privacy.epsilon",
    "cohort-too-small": "policy.first-batch",
    "floor-too-low": "secure-sum.corrupt, secure-sum.dropout or the number of nodes",
    "threat-too-weak": "secure-sum.corrupt or secure-sum.server",
    "range-differs": "rewards.range or rewards.unit",
    "window-too-short": "rewards.window-s",
    "quorum-too-low": "secure-sum.dropout",
    "delta-too-small": "secure-sum.inputs or secure-sum.shuffle",
    "price-changed": "privacy.epsilon in a new run only",
    "too-many-prices": "privacy.epsilon and privacy.mechanism to those of a late run",
}


class TermsRefusedError(UnavailableError):
    """Too few nodes agree to the experiment's terms; nobody was asked on them."""


@dataclass(frozen=True, slots=True)
class _Sizes:
    """What varies between cohorts of one experiment; larger is better for users."""

    cohort: int
    floor: Fraction
    corrupt: Fraction

    @classmethod
    def of(cls, spec: CohortSpec) -> _Sizes:
        size = max(1, spec.cohort_size)
        beyond_floor = Fraction(spec.quorum - spec.honest_floor, size)
        return cls(spec.cohort_size, Fraction(spec.honest_floor, size), beyond_floor)

    def at_least(self, other: _Sizes) -> bool:
        return (
            self.cohort >= other.cohort
            and self.floor >= other.floor
            and self.corrupt >= other.corrupt
        )


@dataclass(slots=True)
class _Known:
    """What one node said to which sizes."""

    accepted: list[_Sizes] = field(default_factory=list)
    refused: dict[_Sizes, Refusal] = field(default_factory=dict)

    def accepts(self, sizes: _Sizes) -> bool:
        return any(sizes.at_least(earlier) for earlier in self.accepted)


class Terms:
    """What the nodes of a run agree to.

    Parameters
    ----------
    port : NodePort
        How nodes are reached.
    run_id : str
        The run; mechanism, ε, threat and back-end are the same in all of it.
    arms : Sequence[str]
        The names of all arms: a node agrees to all of them or takes no part.
    timeout_s : float
        How long a node may take to say.
    """

    def __init__(
        self, port: NodeTransport, run_id: str, arms: Sequence[str], timeout_s: float
    ) -> None:
        self._port = port
        self._run_id = run_id
        self._arms = tuple(arms)
        self._timeout_s = timeout_s
        self._known: defaultdict[NodeId, _Known] = defaultdict(_Known)
        self._agreed: dict[NodeId, CohortSpec] = {}  # the last one
        self._told: dict[NodeId, Accepted] = {}

    async def offer(
        self, specs: Sequence[CohortSpec], nodes: Iterable[NodeId]
    ) -> Mapping[NodeId, Refusal]:
        """Give the nodes that do not agree, or did not say, each with its reason."""
        distinct = {_Sizes.of(spec): _offered(spec) for spec in specs}
        against: dict[NodeId, Refusal] = {}
        asked: dict[NodeId, dict[_Sizes, CohortSpec]] = {}
        for node in nodes:
            known = self._known.get(node)
            if known is None:  # of many nodes each is met once
                asked[node] = distinct
                continue
            refusals = [known.refused[s] for s in distinct if s in known.refused]
            if refusals:
                against[node] = refusals[0]
            elif new := {s: c for s, c in distinct.items() if not known.accepts(s)}:
                asked[node] = new
        return against | (await self._ask(asked) if asked else {})

    async def renew(self, nodes: Iterable[NodeId]) -> Mapping[NodeId, Refusal]:
        """Offer what nodes agreed to last once more; who can be asked has changed."""
        anew: dict[str, CohortSpec] = {}  # many nodes agreed to the same
        asked = {}
        for node in nodes:
            spec = self._agreed.get(node)
            if spec is not None:
                same = anew.get(spec.cohort_id) or _offered(spec)
                anew[spec.cohort_id] = same
                asked[node] = {_Sizes.of(spec): same}
        return await self._ask(asked) if asked else {}

    @property
    def refusing(self) -> frozenset[NodeId]:
        """The nodes whose policy refused terms, and that agreed to no others."""
        return frozenset(
            node
            for node, said in self._known.items()
            if said.refused and not said.accepted
        )

    def declined(self, node: NodeId, spec: CohortSpec, refusal: Refusal) -> None:
        """Note that a node refused terms by its policy after all."""
        self._known[node].accepted.clear()
        self._known[node].refused[_Sizes.of(spec)] = refusal

    def unsure(self, node: NodeId) -> None:
        """Offer to a node anew: it could not keep what it had agreed to."""
        self._known[node].accepted.clear()

    async def _ask(
        self, asked: Mapping[NodeId, Mapping[_Sizes, CohortSpec]]
    ) -> dict[NodeId, Refusal]:
        against = dict.fromkeys(asked, Refusal(NO_ANSWER))
        requests = offer_requests(
            self._run_id,
            self._arms,
            {node: tuple(specs.values()) for node, specs in asked.items()},
        )
        stream = self._port.ask(requests, timeout_s=self._timeout_s)
        async with aclosing(stream) as answers:
            async for answer in answers:
                if answer.failure is not None:
                    against[answer.node_id] = Refusal(answer.failure)
                    continue
                specs = asked[answer.node_id]
                try:
                    replies = offer_reply(answer, tuple(specs.values()))
                except ProtocolError as error:
                    against[answer.node_id] = Refusal(error.code)
                    continue
                del against[answer.node_id]
                for sizes, spec in specs.items():
                    reply = replies[spec.cohort_id]
                    if isinstance(reply, Accepted):
                        self._known[answer.node_id].accepted.append(sizes)
                        self._agreed[answer.node_id] = spec
                        self._told[answer.node_id] = reply
                        continue
                    against[answer.node_id] = reply
                    if reply.terms:
                        self._known[answer.node_id].refused[sizes] = reply
        return against

    def take_told(self) -> Mapping[NodeId, Accepted]:
        """Return what nodes that agreed said of their users since the last time."""
        told, self._told = self._told, {}
        return told


def _offered(spec: CohortSpec) -> CohortSpec:
    """Return the terms of a cohort under an id that no cohort has.

    An offer is no invitation: its id must prove to nobody that there was one. And the
    same terms may be offered again, which must not look like the same request.
    """
    offer = CohortSpec()
    offer.CopyFrom(spec)
    offer.cohort_id = f"offer-{secrets.token_hex(8)}"
    return offer


def by_terms(against: Mapping[NodeId, Refusal]) -> frozenset[NodeId]:
    """Name the nodes that refused by their policy, not by being away."""
    return frozenset(node for node, refusal in against.items() if refusal.terms)


def not_ready(against: Mapping[NodeId, Refusal]) -> str:
    """Count the nodes that would agree but cannot work now, by reason."""
    codes = Counter(refusal.code for refusal in against.values() if not refusal.terms)
    said = [f"{count} {code}" for code, count in codes.most_common(_MOST_REASONS)]
    return f"not ready: {', '.join(said)}" if said else ""


def agree_with_more(passing: Mapping[NodeId, Refusal]) -> str:
    """Count the nodes that refuse only because others are away, by reason."""
    codes = Counter(refusal.code for refusal in passing.values())
    reasons = ", ".join(code for code, _ in codes.most_common(_MOST_REASONS))
    if not passing:
        return ""
    return f"{len(passing)} agree only when more nodes are there: {reasons}"


def _most_first(group: tuple[str, list[NodeId]]) -> int:
    return -len(group[1])


def refused_text(against: Mapping[NodeId, Refusal], known: int) -> str:
    """Say which nodes refused which term, and what to change."""
    groups: defaultdict[str, list[NodeId]] = defaultdict(list)
    for node in sorted(by_terms(against)):
        groups[against[node].code].append(node)
    parts = []
    for code, nodes in sorted(groups.items(), key=_most_first)[:_MOST_REASONS]:
        more = "" if len(nodes) <= 3 else f" and {len(nodes) - 3} more"
        parts.append(
            f"{code} ({', '.join(nodes[:3])}{more}; "
            f"change {_CHANGES.get(code, 'the experiment')})"
        )
    return (
        f"{len(by_terms(against))} of {known} nodes do not agree to the experiment's "
        f"terms: {'; '.join(parts)}"
    )
