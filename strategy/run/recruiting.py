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

from wallflower.protocol.errors import InputError, UnavailableError
from wallflower.protocol.messages.port import NodeId
from wallflower.protocol.privacy.honest_floor import Floor
from wallflower.protocol.wire.cohort_pb2 import CohortSpec
from wallflower.strategy.bandit.policy import CohortWish, Policy
from wallflower.strategy.config import ExperimentConfig
from wallflower.strategy.record import events
from wallflower.strategy.record.journal import Journal
from wallflower.strategy.run.cohort_spec import (
    draw_round,
    everybody_suffices,
    may_go_on,
    who_is_left,
)
from wallflower.strategy.run.drawing import Draw, UserRegistry
from wallflower.strategy.run.driver import Refusal
from wallflower.strategy.run.roll_call import RollCall
from wallflower.strategy.run.sharing import UsersExhaustedError
from wallflower.strategy.run.terms import (
    Terms,
    TermsRefusedError,
    by_terms,
    not_ready,
    refused_text,
)

_LOOK_S = 0.25  # ports are asked who is there, they do not tell


Describe: TypeAlias = Callable[[CohortWish, Floor], CohortSpec]


@dataclass(frozen=True, slots=True)
class Recruited:
    """One cohort whose nodes agreed to its terms; nobody is invited yet."""

    wish: CohortWish
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
        self._met: dict[str, int] = {}
        self._told: frozenset[NodeId] = frozenset()

    async def recall(self) -> None:
        """Learn from the journal which nodes there were before a restart."""
        self._met = await self._journal.call(self._journal.met)
        self._registry.know(self._met)

    async def recruit(
        self, wishes: Sequence[CohortWish], describe: Describe
    ) -> list[Recruited]:
        """Draw the users of all wishes, or nobody, on nodes that agree to the terms.

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
        told: events.WaitingForNodes | None = None
        against: dict[NodeId, Refusal] = {}
        while True:
            present = await self._look()
            willing = [node for node in present if node not in against]
            found = self._drawn(wishes, willing, describe)
            if found is not None:
                refused = await self._refused(found, willing)
                if not refused:
                    await self._tell(against)
                    return found
                against |= refused
                continue
            waiting = self._waiting(wishes, present, not_ready(against))
            against = {node: against[node] for node in by_terms(against)}
            self._require_users(wishes, against)
            if deadline is None:
                deadline = loop.time() + self._config.transport.return_timeout_s
            if loop.time() >= deadline:
                raise NodesMissingError(_missing(waiting, self._journal))
            if told is None or (told.present, told.why) != (len(present), waiting.why):
                told = waiting
                await self._listen(waiting)
            await asyncio.sleep(min(_LOOK_S, max(0.0, deadline - loop.time())))

    def _drawn(
        self,
        wishes: Sequence[CohortWish],
        nodes: Sequence[NodeId],
        describe: Describe,
    ) -> list[Recruited] | None:
        try:
            draws = draw_round(self._registry, self._config, wishes, nodes)
        except (UsersExhaustedError, InputError):
            return None
        return [
            Recruited(wish, draw, describe(wish, draw.floor))
            for wish, draw in zip(wishes, draws, strict=True)
        ]

    async def _refused(
        self, found: Sequence[Recruited], willing: Sequence[NodeId]
    ) -> dict[NodeId, Refusal]:
        """Offer the cohorts to their nodes; if one refuses, nobody was drawn."""
        specs = [one.spec for one in found]
        drawn = {node for one in found for node in one.draw.users}
        refused = dict(await self.terms.offer(specs, sorted(drawn)))
        if not refused:
            return {}
        for one in found:
            self._registry.give_back(one.draw.users)
        if by_terms(refused):  # others will refuse, too: ask everyone at once
            others = [node for node in willing if node not in drawn]
            refused |= await self.terms.offer(specs, others)
        return refused

    async def _tell(self, against: Mapping[NodeId, Refusal]) -> None:
        refusing = by_terms(against)
        if refusing and refusing != self._told:
            self._told = refusing
            known = len(self._registry.known)
            text = refused_text(against, known)
            await self._listen(events.TermsRefused(len(refusing), known, text))

    async def shrink(self, number: int, policy: Policy) -> None:
        """Limit a round to who is left, where everybody known does not suffice.

        Newcomers are looked for first; the journal has the limit before anybody is
        asked.
        """
        if everybody_suffices(self._registry, self._config, policy.wishes()):
            return
        await self._look()
        if everybody_suffices(self._registry, self._config, policy.wishes()):
            return
        users = who_is_left(self._registry, self._config, policy)
        if users is not None:
            await self._journal.call(self._journal.note_limited, number, users)
            policy.limit(users)

    async def exhausted(self, policy: Policy) -> bool:
        """Say whether nobody is left to ask; newcomers are looked for before."""
        if may_go_on(self._registry, self._config, policy):
            return False
        await self._look()
        return not may_go_on(self._registry, self._config, policy)

    async def willing(self) -> dict[NodeId, int]:
        """Name the nodes that stay and refused no terms, with their users."""
        present = await self._look()  # first: somebody may be there for the first time
        known = self._registry.known
        out = self.terms.refusing | self._registry.visitors
        return {node: known[node] for node in present if node not in out}

    async def _look(self) -> Sequence[str]:
        """See who is there, and write down whoever is there for the first time."""
        present = await self._roll_call.refresh()
        known = self._registry.known
        new = {} if known == self._met else dict(known.items() - self._met.items())
        if new:
            self._met |= new
            await self._journal.call(self._journal.meet, new)
        return present

    def _require_users(
        self, wishes: Sequence[CohortWish], against: Mapping[NodeId, Refusal]
    ) -> None:
        if not everybody_suffices(self._registry, self._config, wishes):
            wanted = sum(wish.size for wish in wishes)
            raise UsersExhaustedError(wanted, self._registry.remaining)
        if not everybody_suffices(self._registry, self._config, wishes, against):
            text = refused_text(against, len(self._registry.known))
            raise TermsRefusedError(
                f"{text}. Nobody was asked on these terms. Begin a run with others, or "
                "let the nodes' policies allow them and resume this one: wallflower "
                f"resume {self._journal.run_dir}"
            )

    def _waiting(
        self, wishes: Sequence[CohortWish], present: Sequence[str], why: str
    ) -> events.WaitingForNodes:
        return events.WaitingForNodes(
            present=len(present),
            known=len(self._registry.known),
            wanted=sum(wish.size for wish in wishes),
            available=self._registry.left_on(present),
            patience_s=self._config.transport.return_timeout_s,
            why=why,
        )


def _missing(waiting: events.WaitingForNodes, journal: Journal) -> str:
    return (
        f"waiting for nodes: {waiting.present} of {waiting.known} nodes are there"
        f"{waiting.why and f' ({waiting.why})'}, "
        f"with {waiting.available} users who may be asked, but {waiting.wanted} are "
        f"wanted; waited {waiting.patience_s:g} s (transport.return-timeout-s). When "
        f"they are back: wallflower resume {journal.run_dir}"
    )
