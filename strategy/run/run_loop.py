"""A run from its first round to its end, whoever is asked: known users or people who
arrive.

Per round the policy requests cohorts, they are asked, the policy decides on the sums,
and the round is written down. Between two rounds arms may be retired and the run may
be paused. How people are found is for the two orchestrators.
"""

from __future__ import annotations

import abc
import asyncio
import time
from collections import Counter
from collections.abc import Sequence

from wallflower.protocol.errors import first_error
from wallflower.protocol.messages.port import NodeTransport
from wallflower.strategy.bandit.policy import CohortSum, Policy
from wallflower.strategy.config import ExperimentConfig
from wallflower.strategy.run.cohort import CohortRunner, stage_deadlines
from wallflower.strategy.run.key_generation import KeyGeneration
from wallflower.strategy.run.pending_cohorts import PendingCohorts, SessionFactory
from wallflower.strategy.run.run_state import apply_retirements, next_round, views_of
from wallflower.strategy.run.spending import Spending
from wallflower.strategy.store import events
from wallflower.strategy.store.entries import PAUSED, RESUMED, RoundRecord, SumRecord
from wallflower.strategy.store.journal import Journal
from wallflower.strategy.store.run_store import requests_of
from wallflower.strategy.store.seats import RUN_OVER
from wallflower.strategy.store.spool import Spool


class RunLoop(abc.ABC):
    """What every orchestrator does; see `Orchestrator` for the parameters."""

    def __init__(
        self,
        config: ExperimentConfig,
        journal: Journal,
        transport: NodeTransport,
        sessions: SessionFactory,
        listen: events.Listen,
        spool: Spool | None,
    ) -> None:
        self._config = config
        self._journal = journal
        self._transport = transport
        self._run_id = journal.run_id
        self._listen = listen
        self._pending = PendingCohorts(journal, sessions, spool)
        self._runner = CohortRunner(
            journal, transport, self._pending, listen, stage_deadlines(config)
        )
        self._key_generation = KeyGeneration(
            config,
            journal,
            transport,
            sessions=sessions,
            closings=self._runner.closings,
            listen=listen,
        )
        self._tally = self._runner.tally
        self._spending = Spending()
        self._attempts: Counter[tuple[int, int]] = Counter()  # of a round, by arm
        self.is_over = False  # not paused: nothing of the run is needed any more

    async def run(self) -> None:
        """Bring the experiment to its end; the journal is the result."""
        try:
            await self._run()
        except BaseExceptionGroup as group:
            raise first_error(group) from None

    async def _run(self) -> None:
        number, policy = await self._journal.call(next_round, self._journal)
        over = policy.finished is not None
        await self._begin(None if over else number)
        if over:
            await self._show(policy, RUN_OVER)
            self.is_over = True
            return
        if self._spending:
            await self._journal.call(self._journal.note, RESUMED, number)
        await self._listen(await self._describe_start(number))
        while True:
            await apply_retirements(self._journal, policy, number, self._listen)
            if policy.finished is not None:
                await self._show(policy, RUN_OVER)
                self.is_over = True
                break
            if requests_of(self._journal.run_dir).is_pause_requested():
                await self._show(policy, PAUSED)
                await self._journal.call(self._journal.note, PAUSED, number)
                break
            await self._round(number, policy)
            number += 1
        await self._close_all()

    @abc.abstractmethod
    async def _begin(self, number: int | None) -> None:
        """Go on with what a restart interrupted in round `number`, and meet the nodes.

        None says that the run is over and nothing can be used.
        """

    @abc.abstractmethod
    async def _describe_start(self, number: int) -> events.RunStarted:
        """Return the event that begins the run at round `number`."""

    @abc.abstractmethod
    async def _round(self, number: int, policy: Policy) -> None:
        """Ask one round and let the policy decide."""

    @abc.abstractmethod
    async def _close_all(self) -> None:
        """Tell nodes to forget what they keep; nothing depends on an answer."""

    @abc.abstractmethod
    async def _count_participations(self) -> int:
        """Return how often the busiest person was asked."""

    async def _show(self, policy: Policy, reason: str) -> None:
        """Say what people are shown who are not asked; known users need not be told."""
        return

    async def _observe(
        self, policy: Policy, sums: Sequence[tuple[CohortSum, SumRecord]]
    ) -> None:
        """Let the policy decide, which may take long: nodes must still be served."""
        await asyncio.to_thread(policy.observe, [outcome for outcome, _ in sums])

    async def _finish(
        self,
        number: int,
        policy: Policy,
        sums: Sequence[SumRecord],
        started: float,
    ) -> None:
        """Write a round down and say so."""
        views = views_of(policy, self._tally.asked)
        record = RoundRecord(
            number,
            views,
            policy.state(),
            # Composing privacy losses may take long: nodes must be served meanwhile.
            await asyncio.to_thread(
                self._spending.compute,
                await self._count_participations(),
                test_mode=self._config.test_mode,
                keys=tuple(self._key_generation.sizes),
            ),
            policy.finished,
        )
        head = await self._journal.call(self._journal.finish_round, record, sums)
        self._attempts.clear()
        self._key_generation.close_ended()
        await self._pending.forget(one.cohort_id for one in sums)
        await self._listen(
            events.RoundFinished(
                number=number,
                views=views,
                invited=self._tally.invited,
                answered=self._tally.answered,
                lost=self._tally.lost,
                finished=policy.finished,
                seconds=time.monotonic() - started,
                head=head,
            )
        )
