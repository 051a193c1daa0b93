"""A run directory with open seats, and workers that answer polls for it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.support.seated_sums import ARMS, Person, SeatedRun
from tests.support.secure_sums import NOW
from wallflower.protocol.files.keyfiles import public_key_pem
from wallflower.protocol.files.sections import RewardSettings
from wallflower.protocol.visitors import INVITED
from wallflower.protocol.wire.visitors_pb2 import VisitorReply
from wallflower.strategy.config import (
    ExperimentConfig,
    ExperimentSettings,
    PrivacySettings,
)
from wallflower.strategy.sections import (
    SecureSumSettings,
    StoreSettings,
    VisitorSettings,
)
from wallflower.strategy.secure_sum.contributions import SeatTerms
from wallflower.strategy.store.entries import CohortRecord
from wallflower.strategy.store.journal import Journal
from wallflower.strategy.store.seat_register import SeatRegister
from wallflower.strategy.store.seat_store import SeatQueue, SeatStore
from wallflower.strategy.transport.visitors.handler import VisitorHandler, VisitorRun


class SeatServer:
    """A run's orchestrator as far as its seats go, and as many workers as needed."""

    def __init__(
        self, run_dir: Path, run: SeatedRun, most: int = 1, store: str = ""
    ) -> None:
        self.run_dir, self.run, self.now = run_dir, run, float(NOW)
        config = _config(run_dir, run, most, store)
        self.journal = Journal.create(run_dir, run.run_id, config, "x")
        self.register = SeatRegister(self.journal.database)
        self.open: list[str] = []  # the cohorts of the last round
        self._stores: list[SeatStore] = []

    @property
    def known_run(self) -> VisitorRun:
        return VisitorRun(self.run.run_id, ARMS, self.run.admission, self.run.trust)

    @property
    def clock(self) -> Callable[[], float]:
        return lambda: self.now

    def queue(self) -> SeatQueue:
        self._stores.append(SeatStore.open(self.run_dir, self.clock))
        return SeatQueue(self._stores[-1])

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
        self.open = names
        return names

    def stored(self, cohort_id: str) -> dict[str, bytes]:
        """Close a cohort and return what its visitors answered."""
        self.register.close_seats([cohort_id])
        return dict(self.register.read_contributions(cohort_id))

    def close(self) -> None:
        for store in self._stores:
            store.close()
        self.journal.close()


def _config(run_dir: Path, run: SeatedRun, most: int, store: str) -> ExperimentConfig:
    """Return an experiment with the run's admission; its keys lie beside the run."""
    inviter, enrolment = (
        run_dir.parent / "inviter.pub",
        run_dir.parent / "enrolment.pub",
    )
    inviter.write_bytes(public_key_pem(run.inviter.public_key))
    enrolment.write_bytes(public_key_pem(run.enrolment.key.public_key))
    lying = run.threat.malicious_server
    return ExperimentConfig(
        ExperimentSettings("seats", ARMS, horizon=10_000),
        privacy=PrivacySettings(max_participations=most),
        secure_sum=SecureSumSettings(
            server="malicious" if lying else "semi-honest", enrolment=enrolment
        ),
        rewards=RewardSettings(means=(0.1, 0.2, 0.3)),
        visitors=VisitorSettings(
            run.admission, inviter=inviter if run.admission == INVITED else None
        ),
        store=StoreSettings(store),
    )


async def arrive(worker: VisitorHandler, person: Person) -> VisitorReply:
    result = await worker.handle(person.arriving().SerializeToString())
    return VisitorReply.FromString(result.reply)


async def answer(worker: VisitorHandler, person: Person, body: bytes) -> VisitorReply:
    result = await worker.handle(person.answering(body).SerializeToString())
    return VisitorReply.FromString(result.reply)
