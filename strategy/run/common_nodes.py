"""The same nodes in all sums of a round, so that vanishing nodes favour no arm.

A node with people in several arms may vanish in one of them. Its people would then be
missing from that arm alone, and arms would differ by their nodes. Where the server
chooses who is in a sum (`ChoosingSession`), the sums of a round wait for each other
before they close. Whoever is missing from one is left out of all, if every sum still
has its contributors and its quorum. Otherwise each keeps whom it has: the result counts
such rounds, and its bound for missing people holds all the same.

Nothing weakens: a set only becomes smaller, and it is checked as before, by the server
and by the nodes that open it. Nothing waits for long: contributions have their
deadline, an arm whose cohort is void is asked anew a bounded number of times, and an
arm that gives up leaves. The round could not end before any of this.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable, Mapping, Set
from dataclasses import dataclass
from typing import Any, TypeVar

from wallflower.protocol.messages.port import NodeId
from wallflower.protocol.secure_sum.session import ChoosingSession, ServerSession
from wallflower.strategy.bandit.policy import Arm
from wallflower.strategy.run.driver import LARGE, Settle
from wallflower.strategy.store.journal import Journal

Asked = TypeVar("Asked")
Filled = TypeVar("Filled")
LEFT_OUT = "missing-in-another-arm"


@dataclass(frozen=True, slots=True)
class _Contributed:
    """A cohort whose contributions are in."""

    session: ChoosingSession
    missing: Set[NodeId]


async def fill_together(
    asked: Mapping[Arm, Asked],
    fill: Callable[[Asked, CommonNodes], Coroutine[Any, Any, Filled]],
) -> list[Filled]:
    """Fill the requests of a round at the same time, on the same nodes."""
    common = CommonNodes(asked)

    async def fill_arm(arm: Arm) -> Filled:
        try:
            return await fill(asked[arm], common)
        finally:
            common.leave(arm)

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(fill_arm(arm)) for arm in asked]
    return [task.result() for task in tasks]


class CommonNodes:
    """One round's sums; `arms` are all that may still close a set."""

    def __init__(self, arms: Iterable[Arm]) -> None:
        self._awaited = set(arms)
        self._ready: dict[Arm, _Contributed] = {}
        self._missing: set[NodeId] = set()  # from sums that are closed
        self._settled = asyncio.Event()

    def settle_for(
        self, arm: Arm, nodes: Set[NodeId], session: ServerSession
    ) -> Settle | None:
        """Return what a cohort of `nodes` calls when its contributions are in.

        A restored session whose set is closed already settles at once.
        """
        if not isinstance(session, ChoosingSession):
            self.leave(arm)
            return None
        if session.chosen is not None:
            self._missing |= nodes - session.chosen
            self.leave(arm)
            return None

        async def settle(_session: ServerSession) -> None:
            await self._wait(arm, nodes, session)

        self._awaited.add(arm)
        return settle

    def leave(self, arm: Arm) -> None:
        """Note that nobody needs to wait for an arm any more."""
        self._awaited.discard(arm)
        self._settle_if_complete()

    async def _wait(
        self, arm: Arm, nodes: Set[NodeId], session: ChoosingSession
    ) -> None:
        if len(nodes) >= LARGE:  # the last proofs are checked beside the loop
            there = await asyncio.to_thread(session.contributors)
        else:
            there = session.contributors()
        if not session.can_close_without(frozenset()):
            return  # it is void; others wait for who is asked instead
        self._ready[arm] = _Contributed(session, nodes - there)
        settled = self._settled
        self.leave(arm)
        await settled.wait()

    def _settle_if_complete(self) -> None:
        """Leave out of all sums whoever is missing from one, when the last has come."""
        if self._awaited:
            return
        ready, self._ready = list(self._ready.values()), {}
        gone = self._missing.union(*(one.missing for one in ready))
        if all(one.session.can_close_without(gone) for one in ready):
            for one in ready:
                one.session.leave_out(gone, LEFT_OUT)
            self._missing = gone
        self._settled.set()
        self._settled = asyncio.Event()


def find_unlike_rounds(journal: Journal) -> Set[int]:
    """Return the rounds in which a node is in one arm's sum and missing in another's.

    Only arms with a sum count, and for each of them only the nodes that were asked.
    """
    asked = journal.count_invited()
    there: defaultdict[int, set[NodeId]] = defaultdict(set)
    missing: defaultdict[int, set[NodeId]] = defaultdict(set)
    for cohort in journal.cohorts():
        if cohort.result is not None:
            there[cohort.round_number].update(cohort.result.nodes)
            missing[cohort.round_number] |= asked.get(
                cohort.cohort_id, {}
            ).keys() - set(cohort.result.nodes)
    return {number for number in there if there[number] & missing[number]}
