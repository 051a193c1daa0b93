"""A run with seats in a store: its orchestrator, its workers, and the time they see."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from pathlib import Path

from tests.strategy.store.test_journal import config
from wallflower.strategy.config import PrivacySettings
from wallflower.strategy.sections import StoreSettings
from wallflower.strategy.store.entries import CohortRecord
from wallflower.strategy.store.journal import Journal
from wallflower.strategy.store.seat_register import SeatRegister
from wallflower.strategy.store.seat_store import SeatStore
from wallflower.strategy.store.seats import SeatedCohort

FIRST, SECOND = b"1" * 16, b"2" * 16
NOW, SEATS_UNTIL, ANSWERS_UNTIL = 1000.0, 1100.0, 1200.0


class Clock:
    """The time that a worker sees."""

    now = NOW

    def __call__(self) -> float:
        return self.now


class Server:
    """A run with seats: its orchestrator, and as many workers as a test wants."""

    def __init__(self, run_dir: Path, url: str = "", most: int = 1) -> None:
        self.run_dir, self.clock, self._rounds = run_dir, Clock(), 0
        self._open = list[SeatStore]()
        settings = config(
            privacy=PrivacySettings(max_participations=most), store=StoreSettings(url)
        )
        run_id = secrets.token_hex(8)
        self.journal = Journal.create(run_dir, run_id, settings, "x")
        self.register = SeatRegister(self.journal.database)

    def worker(self) -> SeatStore:
        self._open.append(SeatStore.open(self.run_dir, self.clock))
        return self._open[-1]

    def open_round(self, seats: int, arms: int = 2) -> list[str]:
        """Open a round of cohorts with so many seats each, in turns."""
        self._rounds += 1
        names = [f"r{self._rounds}-a{arm}" for arm in range(arms)]
        number = self._rounds
        self.journal.invite(
            [
                CohortRecord(name, number, number, arm, 1, seats, b"spec")
                for arm, name in enumerate(names)
            ]
        )
        self.open_seats(names, seats)
        return names

    def open_seats(self, names: Sequence[str], seats: int) -> None:
        self.register.open_seats(
            [
                SeatedCohort(name, arm, seats, b"terms", SEATS_UNTIL, ANSWERS_UNTIL)
                for arm, name in enumerate(names)
            ],
            list(names) * seats,
        )

    def close(self) -> None:
        for worker in self._open:
            worker.close()
        self.journal.close()


def names(count: int, first: int = 0) -> list[str]:
    return [f"{number:032x}" for number in range(first, first + count)]
