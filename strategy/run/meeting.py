"""Meet the nodes: who is there, who lives with them, and what terms they agree to.

Nodes are asked whether their users agree before anybody is invited. A node refuses by
its users' policy, and will refuse the same terms again: inviting its users would use
them up for nothing. What a node accepted stands for every later cohort on the same or
better terms, so that a round costs no message more than its sums.
"""

from __future__ import annotations

import abc
import asyncio
import logging
import secrets
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from fractions import Fraction

from wallflower.protocol.errors import ProtocolError, UnavailableError
from wallflower.protocol.messages.port import NodeId, NodeTransport
from wallflower.protocol.refusals import RefusalCode
from wallflower.protocol.secure_sum.backends import asks_once
from wallflower.protocol.wire.cohort_pb2 import CohortSpec
from wallflower.protocol.wire.node_pb2 import Accepted, Description
from wallflower.strategy.run.driver import Refusal
from wallflower.strategy.run.registry import UserRegistry
from wallflower.strategy.run.requests import (
    describe_request,
    description_of,
    offer_reply,
    offer_requests,
)
from wallflower.strategy.store.journal import Journal

_log = logging.getLogger(__name__)

# How often a transport is asked who is there; a count is cheap on all of them.
_TRIES = 3  # a node that is busy for a moment must not miss the roll call
_PAUSE_S, _RETRY_S = 0.05, 0.3
_MOST_ANSWERED = 1_000  # cohorts that one node's word is taken for


class NeedsStreamError(ProtocolError):
    """A node comes now and then, and the run's sums need it to stay."""

    code = RefusalCode.NEEDS_A_STREAM.value


class NodeCall(abc.ABC):
    """Asks every node that a transport can reach to describe itself, once.

    Parameters
    ----------
    transport : NodeTransport
        How nodes are reached.
    journal : Journal
        The run's; nodes that answered cohorts which it lacks end the run.
    timeout_s : float
        How long a node may take to describe itself.
    """

    def __init__(
        self, transport: NodeTransport, journal: Journal, timeout_s: float
    ) -> None:
        self._transport = transport
        self._journal = journal
        self._run_id = journal.run_id
        self._timeout_s = timeout_s
        self._calls = 0
        self._refused: set[str] = set()

    @property
    @abc.abstractmethod
    def _known(self) -> Container[NodeId]:
        """Nodes that described themselves and take part."""

    @abc.abstractmethod
    def _meet(self, node: NodeId, description: Description) -> None:
        """Take a node's description, or leave it out."""

    async def refresh(self) -> tuple[str, ...]:
        """Ask new nodes to describe themselves; return all that can be asked now."""
        present, known = await self._transport.nodes(), self._known
        others = [node for node in present if node not in known]
        if not others:
            return tuple(present)
        new = [node for node in others if node not in self._refused]
        if new:
            await self._describe(new)
        return tuple(node for node in present if node in known)

    async def _describe(self, nodes: list[str]) -> None:
        described: dict[str, Description] = {}
        for _ in range(_TRIES):
            nodes = await self._ask(nodes, described)
            if not nodes:
                break
            await asyncio.sleep(_RETRY_S)
        answered = [
            cohort_id
            for description in described.values()
            for cohort_id in description.answered[:_MOST_ANSWERED]
        ]
        if answered:
            await self._journal.call(self._journal.check_answered, answered)
        # In one order whatever the network did: a seeded draw must repeat itself.
        for node in sorted(described):
            try:
                self._meet(node, described[node])
            except ProtocolError as error:
                self._refuse(node, error)

    async def _ask(
        self, nodes: list[str], described: dict[str, Description]
    ) -> list[str]:
        """Ask nodes who lives there; give those whose asking failed at once."""
        self._calls += 1
        failed = []
        requests = [describe_request(self._run_id, n, self._calls) for n in nodes]
        stream = self._transport.ask(requests, timeout_s=self._timeout_s)
        async with aclosing(stream) as answers:
            async for answer in answers:
                if answer.failure is not None:
                    failed.append(answer.node_id)
                    continue
                try:
                    described[answer.node_id] = description_of(answer)
                except ProtocolError as error:
                    self._refuse(answer.node_id, error)
        return failed

    def _refuse(self, node_id: str, error: ProtocolError) -> None:
        self._refused.add(node_id)
        _log.warning(
            "node left out",
            extra={"event": "node-refused", "node_id": node_id, "reason": error.code},
        )


class RollCall(NodeCall):
    """Keeps the registry up to date with the nodes a transport can reach.

    Parameters
    ----------
    registry : UserRegistry
        Filled with every node that describes itself credibly.
    backend : str
        Of the run's secure sums; some ask every node several times a cohort, which
        a node that only polls cannot keep up with.
    """

    def __init__(
        self,
        transport: NodeTransport,
        journal: Journal,
        registry: UserRegistry,
        timeout_s: float,
        backend: str,
    ) -> None:
        super().__init__(transport, journal, timeout_s)
        self._registry = registry
        self._backend = backend

    @property
    def _known(self) -> Container[NodeId]:
        return self._registry.nodes

    def _meet(self, node: NodeId, description: Description) -> None:
        if not description.users:
            self._refused.add(node)  # nobody lives there: not worth a word
            return
        if description.polls and not asks_once(self._backend):
            raise NeedsStreamError(f"{self._backend} needs nodes that stay")
        self._registry.add_node(node, tuple(description.users), polls=description.polls)

    async def wait_for(self, expected: int, timeout_s: float) -> None:
        """Wait until `expected` nodes are there and described, or the time is up.

        With fewer the run begins all the same, as long as two are there: a cohort
        needs at least two nodes, and later ones join between rounds.
        """
        try:
            async with asyncio.timeout(timeout_s):
                while len(await self._transport.nodes()) < expected:  # noqa: ASYNC110
                    await asyncio.sleep(_PAUSE_S)  # transports do not report it
        except TimeoutError:
            _log.warning("not all nodes are there", extra={"event": "nodes-missing"})
        await self.refresh()
        if len(self._registry.nodes) < 2:
            raise UnavailableError(
                f"{len(self._registry.nodes)} nodes are there after {timeout_s:g} s; "
                "an experiment needs at least 2: start the nodes, then resume"
            )


NO_ANSWER = "no-answer"
_MOST_REASONS = 5  # said at once; nodes may invent any number
# What an operator can change for each refusal.
_CHANGES: dict[str, str] = {
    RefusalCode.ARM_NOT_ALLOWED: "experiment.arms",
    RefusalCode.MECHANISM_NOT_ALLOWED: "privacy.mechanism",
    RefusalCode.BACKEND_NOT_ALLOWED: "secure-sum.backend",
    RefusalCode.EPSILON_TOO_LARGE: "privacy.epsilon",
    RefusalCode.COHORT_TOO_SMALL: "policy.first-batch",
    RefusalCode.FLOOR_TOO_LOW: (
        "secure-sum.corrupt, secure-sum.dropout or the number of nodes"
    ),
    RefusalCode.THREAT_TOO_WEAK: "secure-sum.corrupt or secure-sum.server",
    RefusalCode.RANGE_DIFFERS: "rewards.range or rewards.unit",
    RefusalCode.WINDOW_TOO_SHORT: "rewards.window-s",
    RefusalCode.QUORUM_TOO_LOW: "secure-sum.dropout",
    RefusalCode.DELTA_TOO_SMALL: "secure-sum.inputs or secure-sum.shuffle",
    RefusalCode.ENROLMENT_REQUIRED: "their key folders: inviter.pub is missing there",
    RefusalCode.PRICE_CHANGED: "privacy.epsilon in a new run only",
    RefusalCode.TOO_MANY_PRICES: (
        "privacy.epsilon and privacy.mechanism to those of a late run"
    ),
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
    transport : NodeTransport
        How nodes are reached.
    run_id : str
        The run; mechanism, ε, threat and back-end are the same in all of it.
    arms : Sequence[str]
        The names of all arms: a node agrees to all of them or takes no part.
    timeout_s : float
        How long a node may take to say.
    """

    def __init__(
        self,
        transport: NodeTransport,
        run_id: str,
        arms: Sequence[str],
        timeout_s: float,
    ) -> None:
        self._transport = transport
        self._run_id = run_id
        self._arms = tuple(arms)
        self._timeout_s = timeout_s
        self._known: defaultdict[NodeId, _Known] = defaultdict(_Known)
        self._agreed: dict[NodeId, CohortSpec] = {}  # the last one
        self._reports: dict[NodeId, Accepted] = {}

    async def offer(
        self, specs: Sequence[CohortSpec], nodes: Iterable[NodeId]
    ) -> Mapping[NodeId, Refusal]:
        """Return the nodes that do not agree, or did not say, each with its reason."""
        distinct = {_Sizes.of(spec): _copy_for_offer(spec) for spec in specs}
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
                same = anew.get(spec.cohort_id) or _copy_for_offer(spec)
                anew[spec.cohort_id] = same
                asked[node] = {_Sizes.of(spec): same}
        return await self._ask(asked) if asked else {}

    @property
    def refusing(self) -> frozenset[NodeId]:
        """The nodes whose policy refused terms, and that agreed to no others."""
        return frozenset(
            node
            for node, known in self._known.items()
            if known.refused and not known.accepted
        )

    def note_refusal(self, node: NodeId, spec: CohortSpec, refusal: Refusal) -> None:
        """Note that a node refused terms by its policy after all."""
        self._known[node].accepted.clear()
        self._known[node].refused[_Sizes.of(spec)] = refusal

    def forget_acceptance(self, node: NodeId) -> None:
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
        stream = self._transport.ask(requests, timeout_s=self._timeout_s)
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
                        self._reports[answer.node_id] = reply
                        continue
                    against[answer.node_id] = reply
                    if reply.terms:
                        self._known[answer.node_id].refused[sizes] = reply
        return against

    def take_reports(self) -> Mapping[NodeId, Accepted]:
        """Return what nodes that agreed said of their users since the last time."""
        left_out, self._reports = self._reports, {}
        return left_out


def _copy_for_offer(spec: CohortSpec) -> CohortSpec:
    """Return the terms of a cohort under an id that no cohort has.

    An offer is no invitation: its id must prove to nobody that there was one. And the
    same terms may be offered again, which must not look like the same request.
    """
    offer = CohortSpec()
    offer.CopyFrom(spec)
    offer.cohort_id = f"offer-{secrets.token_hex(8)}"
    return offer


def refused_by_policy(against: Mapping[NodeId, Refusal]) -> frozenset[NodeId]:
    """Name the nodes that refused by their policy, not by being away."""
    return frozenset(node for node, refusal in against.items() if refusal.terms)


def describe_not_ready(against: Mapping[NodeId, Refusal]) -> str:
    """Count the nodes that would agree but cannot work now, by reason."""
    codes = Counter(refusal.code for refusal in against.values() if not refusal.terms)
    reasons = [f"{count} {code}" for code, count in codes.most_common(_MOST_REASONS)]
    return f"not ready: {', '.join(reasons)}" if reasons else ""


def describe_passing(passing: Mapping[NodeId, Refusal]) -> str:
    """Count the nodes that refuse only because others are away, by reason."""
    codes = Counter(refusal.code for refusal in passing.values())
    reasons = ", ".join(code for code, _ in codes.most_common(_MOST_REASONS))
    if not passing:
        return ""
    return f"{len(passing)} agree only when more nodes are there: {reasons}"


def _most_first(group: tuple[str, list[NodeId]]) -> int:
    return -len(group[1])


def describe_refusals(against: Mapping[NodeId, Refusal], known: int) -> str:
    """Say which nodes refused which term, and what to change."""
    groups: defaultdict[str, list[NodeId]] = defaultdict(list)
    for node in sorted(refused_by_policy(against)):
        groups[against[node].code].append(node)
    parts = []
    for code, nodes in sorted(groups.items(), key=_most_first)[:_MOST_REASONS]:
        more = "" if len(nodes) <= 3 else f" and {len(nodes) - 3} more"
        parts.append(
            f"{code} ({', '.join(nodes[:3])}{more}; "
            f"change {_CHANGES.get(code, 'the experiment')})"
        )
    return (
        f"{len(refused_by_policy(against))} of {known} nodes do not agree to the "
        f"experiment's terms: {'; '.join(parts)}"
    )
