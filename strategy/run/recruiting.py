"""Find the users of the next cohorts: on nodes that agree, waiting for those away.

Nodes come and go: a stream that breaks for a second must not end an experiment. So
"nobody is left" is decided over everybody known, and where those who are there now do
not suffice, the others are waited for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from wallflower.protocol.errors import (
    InputError,
    MalformedMessageError,
    UnavailableError,
    command_on,
)
from wallflower.protocol.messages.port import NodeId
from wallflower.protocol.privacy.honest_floor import Floor
from wallflower.protocol.wire.cohort_pb2 import CohortSpec
from wallflower.strategy.bandit.policy import CohortRequest, Policy
from wallflower.strategy.config import ExperimentConfig
from wallflower.strategy.run.drawing import (
    can_fill_round,
    can_go_on,
    draw_round,
    find_floors,
    find_largest_limit,
)
from wallflower.strategy.run.driver import Refusal
from wallflower.strategy.run.meeting import (
    RollCall,
    Terms,
    TermsRefusedError,
    describe_not_ready,
    describe_passing,
    describe_refusals,
    refused_by_policy,
)
from wallflower.strategy.run.registry import Draw, UserRegistry
from wallflower.strategy.run.sharing import UsersExhaustedError
from wallflower.strategy.store import events
from wallflower.strategy.store.entries import BUDGET_ADVICE, Met
from wallflower.strategy.store.journal import Journal

_LOOK_S = 0.25  # transports are asked who is there, they do not tell


Describe: TypeAlias = Callable[[CohortRequest, Floor], CohortSpec]


@dataclass(frozen=True, slots=True)
class Recruited:
    """One cohort whose nodes agreed to its terms; nobody is invited yet."""

    cohort_request: CohortRequest
    draw: Draw
    spec: CohortSpec


class NodesMissingError(UnavailableError):
    """Users are left, but their nodes did not come back in time."""


class Recruiter:
    """Draws users from the nodes that are there, or waits for more of them.

    Parameters
    ----------
    config : ExperimentConfig
        The experiment.
    journal : Journal
        Where every node that described its users is written down: after a restart the
        users of one that is away are still known.
    roll_call : RollCall
        Says who is there.
    registry : UserRegistry
        Every node's users.
    terms : Terms
        Says what nodes agree to.
    listen : events.Listen
        Hears whom the run waits for.
    """

    def __init__(
        self,
        config: ExperimentConfig,
        journal: Journal,
        roll_call: RollCall,
        registry: UserRegistry,
        terms: Terms,
        listen: events.Listen,
    ) -> None:
        self._config = config
        self._journal = journal
        self._roll_call = roll_call
        self._registry = registry
        self.terms = terms
        self._listen = listen
        self._met: dict[str, Met] = {}
        self._reported: frozenset[NodeId] = frozenset()

    async def restore_nodes(self) -> None:
        """Learn from the journal which nodes there were before a restart."""
        self._met = await self._journal.call(self._journal.read_met)
        self._registry.restore_nodes(self._met)

    async def recruit(
        self,
        next_cohorts: Sequence[CohortRequest],
        describe: Describe,
        like: Mapping[NodeId, int] | None = None,
    ) -> list[Recruited]:
        """Draw the users of all requests, or nobody, on nodes that agree to the terms.

        `like` has the people of each node in a cohort of the same round, which these
        replace or join: they are drawn alike as far as people are left.

        Raises
        ------
        UsersExhaustedError
            Everybody known, there or away, does not suffice.
        TermsRefusedError
            They would suffice, but too few of their nodes agree.
        NodesMissingError
            They would suffice, but too few were there for ``return-timeout-s``.
        """
        loop = asyncio.get_running_loop()
        deadline: float | None = None
        announced: events.WaitingForNodes | None = None
        against: dict[NodeId, Refusal] = {}
        asked_with: frozenset[NodeId] = frozenset()
        while True:
            present = await self._refresh()
            if asked_with != frozenset(present):
                asked_with = frozenset(present)
                against = {}  # with other nodes there the terms are others
            willing = [node for node in present if node not in against]
            found = self._draw(next_cohorts, willing, describe, like)
            if found is not None:
                refused = await self._offer(found, willing)
                if refused is None:
                    await self._report_refusals(against)
                    return found
                against |= refused
                continue
            passing = await self._find_passing(next_cohorts, present, against, describe)
            reasons = (describe_not_ready(against), describe_passing(passing))
            why = "; ".join(reason for reason in reasons if reason)
            waiting = self._waiting_event(next_cohorts, present, why)
            lasting = refused_by_policy(against) - passing.keys()
            against = {node: against[node] for node in lasting}
            self._require_users(next_cohorts, against)
            if deadline is None:
                deadline = loop.time() + self._config.transport.return_timeout_s
            if loop.time() >= deadline:
                raise NodesMissingError(_describe_missing(waiting, self._journal))
            news = (len(present), waiting.why)
            if announced is None or (announced.present, announced.why) != news:
                announced = waiting
                await self._listen(waiting)
            await asyncio.sleep(min(_LOOK_S, max(0.0, deadline - loop.time())))

    def _draw(
        self,
        next_cohorts: Sequence[CohortRequest],
        nodes: Sequence[NodeId],
        describe: Describe,
        like: Mapping[NodeId, int] | None,
    ) -> list[Recruited] | None:
        try:
            draws = draw_round(self._registry, self._config, next_cohorts, nodes, like)
        except (UsersExhaustedError, InputError):
            return None
        return [
            Recruited(cohort_request, draw, describe(cohort_request, draw.floor))
            for cohort_request, draw in zip(next_cohorts, draws, strict=True)
        ]

    async def _offer(
        self, found: Sequence[Recruited], willing: Sequence[NodeId]
    ) -> dict[NodeId, Refusal] | None:
        """Offer the cohorts to their nodes; None if all who were drawn can be asked.

        If a node refuses, or leaves out somebody who was drawn, nobody was drawn.
        """
        specs = [one.spec for one in found]
        drawn = {node for one in found for node in one.draw.users}
        refused = dict(await self.terms.offer(specs, sorted(drawn)))
        refused |= self._leave_out()
        left_out = self._registry.has_left_out(_group_by_node(found))
        if not refused and not left_out:
            await self._record_met()
            return None
        for one in found:
            self._registry.give_back(one.draw.users)
        if left_out or refused_by_policy(
            refused
        ):  # so will others: ask everyone at once
            others = [node for node in willing if node not in drawn]
            refused |= await self.terms.offer(specs, others)
            refused |= self._leave_out()
        await self._record_met()
        return refused

    def _leave_out(self) -> dict[NodeId, Refusal]:
        """Draw nobody whom nodes left out; return the nodes that talk nonsense."""
        refused = {}
        for node, report in self.terms.take_reports().items():
            try:
                self._registry.leave_out(node, report)
            except MalformedMessageError as error:
                refused[node] = Refusal(error.code)
        return refused

    async def _find_passing(
        self,
        next_cohorts: Sequence[CohortRequest],
        present: Sequence[NodeId],
        against: Mapping[NodeId, Refusal],
        describe: Describe,
    ) -> dict[NodeId, Refusal]:
        """Return the refusals that pass when those who are away come back.

        Fewer nodes carry less noise, which a policy may refuse. So the refusing nodes
        are offered the terms that the round would have if all nodes known were there.
        """
        refusing = refused_by_policy(against)
        here = {n for n in present if n not in against or n in refusing}
        if not refusing or not self._registry.has_more_than(here):
            return {}
        lasting: frozenset[NodeId] = frozenset()
        while True:
            floors = find_floors(self._registry, self._config, next_cohorts, lasting)
            if floors is None:
                return {}
            pairs = zip(next_cohorts, floors, strict=True)
            specs = [describe(cohort_request, floor) for cohort_request, floor in pairs]
            still = await self.terms.offer(specs, sorted(refusing - lasting))
            if not refused_by_policy(still):
                return {n: against[n] for n in refusing - lasting}
            lasting |= refused_by_policy(still)

    async def _report_refusals(self, against: Mapping[NodeId, Refusal]) -> None:
        refusing = refused_by_policy(against)
        if refusing and refusing != self._reported:
            self._reported = refusing
            known = len(self._registry.known)
            text = describe_refusals(against, known)
            await self._listen(events.TermsRefused(len(refusing), known, text))

    async def limit_round(self, number: int, policy: Policy) -> bool:
        """Limit a round to who is left, where everybody known does not suffice.

        Return whether it was limited.

        Newcomers are looked for first; the journal has the limit before anybody is
        asked.
        """
        if can_fill_round(self._registry, self._config, policy.next_cohorts()):
            return False
        await self._refresh()
        if can_fill_round(self._registry, self._config, policy.next_cohorts()):
            return False
        users = find_largest_limit(self._registry, self._config, policy)
        if users is None:
            return False
        await self._journal.call(self._journal.note_limited, number, users)
        policy.limit(users)
        return True

    async def is_exhausted(self, policy: Policy) -> bool:
        """Say whether nobody is left to ask; newcomers are looked for before.

        Where people are asked again their nodes say first whose budget is spent.
        """
        if self._config.privacy.max_participations > 1:
            await self.terms.renew(await self._refresh())
            self._leave_out()
            await self._record_met()
        if can_go_on(self._registry, self._config, policy):
            return False
        await self._refresh()
        return not can_go_on(self._registry, self._config, policy)

    async def list_willing(self) -> dict[NodeId, int]:
        """Name the nodes that stay and refused no terms, with their users."""
        # First, because somebody may be there for the first time.
        present = await self._refresh()
        known = self._registry.known
        out = self.terms.refusing | self._registry.polling_nodes
        return {node: known[node].users for node in present if node not in out}

    async def _refresh(self) -> Sequence[str]:
        """See who is there, and write down whoever is there for the first time."""
        present = await self._roll_call.refresh()
        await self._record_met()
        return present

    async def _record_met(self) -> None:
        """Write down what nodes said of their users and the journal does not have."""
        known = self._registry.known
        new = {} if known == self._met else dict(known.items() - self._met.items())
        if new:
            self._met |= new
            await self._journal.call(self._journal.meet, new)

    def _require_users(
        self, next_cohorts: Sequence[CohortRequest], against: Mapping[NodeId, Refusal]
    ) -> None:
        if not can_fill_round(self._registry, self._config, next_cohorts):
            wanted = sum(cohort_request.size for cohort_request in next_cohorts)
            raise UsersExhaustedError(wanted, self._registry.remaining)
        if not can_fill_round(self._registry, self._config, next_cohorts, against):
            text = describe_refusals(against, len(self._registry.known))
            raise TermsRefusedError(
                f"{text}. Nobody was asked on these terms. Begin a run with others, or "
                "let the nodes' policies allow them and resume this one: wallflower "
                f"resume {self._journal.run_dir}"
            )

    def describe_shortage(
        self, number: int, error: UsersExhaustedError
    ) -> UnavailableError:
        """Say that a round cannot be asked of the people who can be asked."""
        askable = self._registry.count_askable()
        change = f"{BUDGET_ADVICE}. Or " if askable.left_out else ""
        return UnavailableError(
            f"the nodes known have too few users for round {number} ({error}). "
            f"{askable.describe()} {change}connect more nodes, then resume: "
            f"{command_on('resume', self._journal.run_dir)}"
        )

    def _waiting_event(
        self, next_cohorts: Sequence[CohortRequest], present: Sequence[str], why: str
    ) -> events.WaitingForNodes:
        return events.WaitingForNodes(
            present=len(present),
            known=len(self._registry.known),
            wanted=sum(cohort_request.size for cohort_request in next_cohorts),
            available=self._registry.count_left(present),
            patience_s=self._config.transport.return_timeout_s,
            why=why,
        )


def _group_by_node(found: Sequence[Recruited]) -> dict[NodeId, set[str]]:
    """Return everybody drawn, by node: each node is looked at once."""
    drawn: dict[NodeId, set[str]] = {}
    for one in found:
        for node, users in one.draw.users.items():
            drawn.setdefault(node, set()).update(users)
    return drawn


def _describe_missing(waiting: events.WaitingForNodes, journal: Journal) -> str:
    return (
        f"waiting for nodes: {waiting.present} of {waiting.known} nodes are there"
        f"{waiting.why and f' ({waiting.why})'}, "
        f"with {waiting.available} users who may be asked, but {waiting.wanted} are "
        f"wanted; waited {waiting.patience_s:g} s (transport.return-timeout-s). When "
        f"they are back: {command_on('resume', journal.run_dir)}"
    )
