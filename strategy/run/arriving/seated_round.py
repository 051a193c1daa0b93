"""The seats of a round: opened together, given in the order of a deck, closed together.

Every arm is measured over the same hours, so a rate that drifts over the day tells
nothing about an arm. A seat whose answer does not come stays lost: who sees which arm
must not depend on who vanishes.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from wallflower.protocol.wire.cohort_pb2 import CohortSpec
from wallflower.strategy.bandit.policy import Policy
from wallflower.strategy.config import ExperimentConfig
from wallflower.strategy.run.arriving.deck import show_leader, shuffle_deck
from wallflower.strategy.run.cohort import AskedCohort
from wallflower.strategy.secure_sum.contributions import seat_terms
from wallflower.strategy.secure_sum.keyring import SharedKey
from wallflower.strategy.store import events
from wallflower.strategy.store.journal import Journal
from wallflower.strategy.store.seat_register import SeatRegister
from wallflower.strategy.store.seats import (
    SeatCounts,
    SeatedCohort,
)

LOOK_S = 1.0  # between two counts of the seats
NO_FREE_SEAT = "no-free-seat"
SEATS = "seats"  # the stage in which people come and answer


def deck_source(config: ExperimentConfig, spec: CohortSpec) -> random.Random:
    """Return where a deck's order comes from: the system, or in test mode a seed."""
    seed = config.test.noise_seed
    if seed is None:
        return random.SystemRandom()
    return random.Random(f"{seed}/{spec.batch}")  # noqa: S311 (test mode alone)


@dataclass(frozen=True, slots=True)
class SeatTimes:
    """When no seat is given any more, and when no answer is taken any more.

    A round is over earlier when everybody answered, and `patience_s` after its last
    seat was taken.
    """

    seats_until: float
    answers_until: float
    patience_s: float

    @classmethod
    def begin(cls, config: ExperimentConfig, now: float) -> SeatTimes:
        """Return the times of seats that open now."""
        assert config.visitors is not None
        patience_s = config.window.limit_s + config.visitors.answer_s
        seats_until = now + config.visitors.deadline_s
        return cls(seats_until, seats_until + patience_s, patience_s)


class SeatedRounds:
    """Opens, watches and closes the seats of one run.

    Parameters
    ----------
    config : ExperimentConfig
        The experiment.
    journal : Journal
        The run's record, which has the seats too.
    listen : events.Listen
        Hears how many have come.
    clock : Callable[[], float]
        Seconds since the epoch.
    look_s : float
        How often seats are counted.
    """

    def __init__(
        self,
        config: ExperimentConfig,
        journal: Journal,
        listen: events.Listen,
        clock: Callable[[], float] = time.time,
        look_s: float = LOOK_S,
    ) -> None:
        self._config = config
        self._journal = journal
        self._listen = listen
        self._clock = clock
        self._look_s = look_s
        self.register = SeatRegister(journal.database)

    async def open(self, asked: Sequence[AskedCohort], key: SharedKey) -> None:
        """Open the seats of cohorts that are in the journal."""
        times = SeatTimes.begin(self._config, self._clock())
        cohorts = [
            SeatedCohort(
                cohort_id=one.record.cohort_id,
                arm=one.record.arm,
                seats=one.users,
                terms=seat_terms(one.traffic.spec, key.note),
                seats_until=times.seats_until,
                answers_until=times.answers_until,
            )
            for one in asked
        ]
        deck = await asyncio.to_thread(
            shuffle_deck,
            [one.cohort_id for one in cohorts],
            cohorts[0].seats,
            deck_source(self._config, asked[0].traffic.spec),
        )
        await self._journal.call(self.register.open_seats, cohorts, deck)

    async def wait(self, asked: Sequence[AskedCohort]) -> None:
        """Return when no more answers can change whether the round has its sums."""
        times = await self._journal.call(self._times, asked[0].record.cohort_id)
        full_at: float | None = None
        while True:
            counts = await self._journal.call(self.register.count_seats)
            mine = [
                (one, counts[one.record.cohort_id])
                for one in asked
                if one.record.cohort_id in counts
            ]
            if len(mine) < len(asked):
                return  # they were closed before a restart
            now = self._clock()
            if full_at is None and not any(one.free for _, one in mine):
                full_at = now
            await self._tell_progress(mine)
            if is_over(mine, times, now, full_at):
                return
            ends = [times.answers_until]
            ends += [times.seats_until] if now < times.seats_until else []
            ends += [] if full_at is None else [full_at + times.patience_s]
            await asyncio.sleep(min(self._look_s, min(ends) - now))

    async def close(self, cohort_ids: Sequence[str]) -> Mapping[str, SeatCounts]:
        """Close seats; who was seated and who answered is in the chain then."""
        return await self._journal.call(self.register.close_seats, cohort_ids)

    async def forget(self, cohort_ids: Sequence[str]) -> None:
        """Drop answers whose cohort's end is written down."""
        await self._journal.call(self.register.forget_contributions, cohort_ids)

    async def show(self, policy: Policy, reason: str) -> None:
        """Say what whoever gets no seat is shown: the arm that leads, or the winner."""
        await self._journal.call(show_leader, self.register, policy, reason)

    def _times(self, cohort_id: str) -> SeatTimes:
        (mine,) = (one for one in self.register.seated() if one.cohort_id == cohort_id)
        patience_s = SeatTimes.begin(self._config, 0.0).patience_s
        return SeatTimes(mine.seats_until, mine.answers_until, patience_s)

    async def _tell_progress(
        self, counted: Sequence[tuple[AskedCohort, SeatCounts]]
    ) -> None:
        for one, counts in counted:
            await self._listen(
                events.CohortProgress(
                    one.record.cohort_id,
                    one.record.arm,
                    SEATS,
                    counts.answered,
                    one.users,
                )
            )


def is_over(
    counted: Sequence[tuple[AskedCohort, SeatCounts]],
    times: SeatTimes,
    now: float,
    full_at: float | None,
) -> bool:
    """Say whether a round's seats may close; no outcome has a say in it."""
    if now >= times.answers_until:
        return True
    if all(counts.answered == one.users for one, counts in counted):
        return True
    if full_at is not None:
        return now >= full_at + times.patience_s
    if now < times.seats_until:
        return False
    # Nobody else is seated. Whoever is may still answer, if that can be enough.
    enough = all(
        counts.taken + counts.answered >= one.traffic.spec.quorum
        for one, counts in counted
    )
    return not enough or not any(counts.taken for _, counts in counted)
