"""A run directory with open seats, and workers that answer polls for it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.strategy.store.test_journal import config
from tests.support.seated_sums import ARMS, RUN, Person, SeatedRun
from tests.support.secure_sums import NOW
from wallflower.protocol.wire.visitors_pb2 import VisitorReply
from wallflower.strategy.config import PrivacySettings
from wallflower.strategy.secure_sum.contributions import SeatTerms
from wallflower.strategy.store.entries import CohortRecord
from wallflower.strategy.store.journal import Journal
from wallflower.strategy.store.seat_register import SeatRegister
from wallflower.strategy.store.seat_store import SeatQueue, SeatStore
from wallflower.strategy.transport.visitors.handler import VisitorHandler, VisitorRun


class SeatServer:
    """A run's orchestrator as far as its seats go, and as many workers as needed."""

    def __init__(self, run_dir: Path, run: SeatedRun, most: int = 1) -> None:
        self.run_dir, self.run, self.now = run_dir, run, float(NOW)
        privacy = PrivacySettings(max_participations=most)
        self.journal = Journal.create(run_dir, RUN, config(privacy=privacy), "x")
        self.register = SeatRegister(self.journal.database)
        self._open: list[SeatStore] = []

    @property
    def known_run(self) -> VisitorRun:
        return VisitorRun(RUN, ARMS, self.run.admission, self.run.trust)

    @property
    def clock(self) -> Callable[[], float]:
        return lambda: self.now

    def queue(self) -> SeatQueue:
        self._open.append(SeatStore.open(self.run_dir, self.clock))
        return SeatQueue(self._open[-1])

    def worker(self) -> VisitorHandler:
        return VisitorHandler(self.known_run, self.queue(), self.clock)

    def terms(self, cohort_id: str) -> SeatTerms:
        """Return the terms of an open cohort."""
        arm = int(cohort_id.rpartition("-")[2])
        return SeatTerms(self.run.cohort(cohort_id, arm).terms, self.run.trust)

    def open_round(self, arms: int = 1) -> list[str]:
        """Open a cohort per arm; give their ids."""
        names = [f"cohort-{arm}" for arm in range(arms)]
        self.journal.invite(
            [
                CohortRecord(name, 1, 1, arm, 1, self.run.seats, b"spec")
                for arm, name in enumerate(names)
            ]
        )
        cohorts = [self.run.cohort(name, arm) for arm, name in enumerate(names)]
        self.register.open_seats(cohorts, names * self.run.seats)
        return names

    def stored(self, cohort_id: str) -> dict[str, bytes]:
        """Close a cohort and return what its visitors answered."""
        self.register.close_seats([cohort_id])
        return dict(self.register.read_contributions(cohort_id))

    def close(self) -> None:
        for store in self._open:
            store.close()
        self.journal.close()


async def arrive(worker: VisitorHandler, person: Person) -> VisitorReply:
    result = await worker.handle(person.arriving().SerializeToString())
    return VisitorReply.FromString(result.reply)


async def answer(worker: VisitorHandler, person: Person, body: bytes) -> VisitorReply:
    result = await worker.handle(person.answering(body).SerializeToString())
    return VisitorReply.FromString(result.reply)
