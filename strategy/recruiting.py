"""Find the users of the next cohorts, and wait for nodes that are away.

Nodes come and go: a stream that breaks for a second must not end an experiment. So
"nobody is left" is decided over everybody known, and where those who are there now do
not suffice, the others are waited for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from protocol.errors import InputError, UnavailableError
from strategy import events
from strategy.cohort_spec import draw_round, everybody_suffices
from strategy.cohorts import Draw, UserRegistry
from strategy.config import ExperimentConfig
from strategy.journal import Journal
from strategy.policy import CohortWish
from strategy.roll_call import RollCall
from strategy.sharing import UsersExhaustedError

_LOOK_S = 0.25  # ports are asked who is there, they do not tell


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
    listen : events.Listen
        Hears whom the run waits for.
    """

    def __init__(
        self,
        config: ExperimentConfig,
        journal: Journal,
        roll_call: RollCall,
        registry: UserRegistry,
        listen: events.Listen,
    ) -> None:
        self._config = config
        self._journal = journal
        self._roll_call = roll_call
        self._registry = registry
        self._listen = listen
        self._met: dict[str, int] = {}

    async def recall(self) -> None:
        """Learn from the journal which nodes there were before a restart."""
        self._met = await self._journal.call(self._journal.met)
        self._registry.know(self._met)

    async def draw(self, wishes: Sequence[CohortWish]) -> list[Draw]:
        """Draw the users of all wishes, or nobody.

        Raises
        ------
        UsersExhaustedError
            Everybody known, there or away, does not suffice.
        NodesMissingError
            They would suffice, but too few were there for ``return-timeout-s``.
        """
        loop = asyncio.get_running_loop()
        deadline: float | None = None
        there = -1
        while True:
            present = await self._look()
            try:
                return draw_round(self._registry, self._config, wishes, present)
            except (UsersExhaustedError, InputError):
                await self._require_users(wishes)
            waiting = self._waiting(wishes, present)
            if deadline is None:
                deadline = loop.time() + self._config.transport.return_timeout_s
            if loop.time() >= deadline:
                raise NodesMissingError(_missing(waiting, self._journal))
            if len(present) != there:
                there = len(present)
                await self._listen(waiting)
            await asyncio.sleep(min(_LOOK_S, max(0.0, deadline - loop.time())))

    async def enough(self, wishes: Sequence[CohortWish]) -> bool:
        """Say whether everybody known suffices; newcomers are asked before it is no."""
        if everybody_suffices(self._registry, self._config, wishes):
            return True
        await self._look()
        return everybody_suffices(self._registry, self._config, wishes)

    async def _look(self) -> Sequence[str]:
        """See who is there, and write down whoever is there for the first time."""
        present = await self._roll_call.refresh()
        known = self._registry.known
        new = dict(known.items() - self._met.items())
        if new:
            self._met |= new
            await self._journal.call(self._journal.meet, new)
        return present

    async def _require_users(self, wishes: Sequence[CohortWish]) -> None:
        if not everybody_suffices(self._registry, self._config, wishes):
            wanted = sum(wish.size for wish in wishes)
            raise UsersExhaustedError(wanted, self._registry.remaining)

    def _waiting(
        self, wishes: Sequence[CohortWish], present: Sequence[str]
    ) -> events.WaitingForNodes:
        return events.WaitingForNodes(
            len(present),
            len(self._registry.known),
            sum(wish.size for wish in wishes),
            self._registry.left_on(present),
            self._config.transport.return_timeout_s,
        )


def _missing(waiting: events.WaitingForNodes, journal: Journal) -> str:
    return (
        f"waiting for nodes: {waiting.present} of {waiting.known} nodes are there, "
        f"with {waiting.available} users who may be asked, but {waiting.wanted} are "
        f"wanted; waited {waiting.patience_s:g} s (transport.return-timeout-s). When "
        f"they are back: wallflower resume {journal.run_dir}"
    )
