"""What seating and hearing people costs the store: SQLite beside PostgreSQL.

Both stores do the same work in one run of this program, so their ratio means something
on a busy machine. A worker takes a seat and stores an answer for each person, in groups
of the sizes that a loaded worker sees. Figures are wall time, this process's CPU time
per person, and for PostgreSQL the CPU time of its processes.
"""

from __future__ import annotations

import argparse
import os
import secrets
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil

from tests.support.postgres_server import running_postgres
from wallflower.protocol.files.sections import RewardSettings
from wallflower.strategy.config import ExperimentConfig, ExperimentSettings
from wallflower.strategy.sections import StoreSettings
from wallflower.strategy.store.entries import CohortRecord
from wallflower.strategy.store.journal import Journal
from wallflower.strategy.store.seat_register import SeatRegister
from wallflower.strategy.store.seat_store import SeatStore
from wallflower.strategy.store.seats import SeatedCohort

ARMS = ("a", "b", "c", "d")
ANSWER_BYTES = 2500  # with a proof of range
ARRIVAL = b"a" * 16


@contextmanager
def run_with_seats(folder: Path, url: str, seats: int) -> Iterator[SeatRegister]:
    """Open a round with so many seats in all."""
    config = ExperimentConfig(
        ExperimentSettings("bench", ARMS),
        rewards=RewardSettings(means=(0.1, 0.2, 0.3, 0.4)),
        store=StoreSettings(url),
    )
    each, until = seats // len(ARMS), time.time() + 3600
    with Journal.create(folder, secrets.token_hex(8), config, "bench") as journal:
        journal.invite(
            [
                CohortRecord(name, 1, 1, arm, 1, each, b"")
                for arm, name in enumerate(ARMS)
            ]
        )
        register = SeatRegister(journal.database)
        register.open_seats(
            [
                SeatedCohort(name, arm, each, b"terms", until, until)
                for arm, name in enumerate(ARMS)
            ],
            ARMS * each,
        )
        yield register


def serve(worker: SeatStore, people: Sequence[str], at_once: int) -> None:
    """Seat everybody and take their answers, so many in a transaction."""
    body = os.urandom(ANSWER_BYTES)
    for first in range(0, len(people), at_once):
        group = people[first : first + at_once]
        seats = worker.take_seats([(name, ARRIVAL) for name in group])
        worker.store_answers(
            [
                (name, ARRIVAL, ARMS[seat.arm], body)
                for name, seat in zip(group, seats, strict=True)
            ]
        )


def server_seconds() -> float:
    """Return the CPU time of all PostgreSQL processes below this one."""
    total = 0.0
    for process in psutil.Process().children(recursive=True):
        times = process.cpu_times()
        total += times.user + times.system
    return total


def measure(name: str, url: str, people: int, sizes: Sequence[int]) -> None:
    """Print a line for each size of a group."""
    with tempfile.TemporaryDirectory() as folder:
        run_dir = Path(folder) / "run"
        with (
            run_with_seats(run_dir, url, people * len(sizes)) as register,
            SeatStore.open(run_dir) as worker,
        ):
            for place, size in enumerate(sizes):
                names = [f"{place}-{number:030x}" for number in range(people)]
                theirs = server_seconds()
                wall, own = time.perf_counter(), time.process_time()
                serve(worker, names, size)
                wall, own = time.perf_counter() - wall, time.process_time() - own
                theirs = server_seconds() - theirs
                print(
                    f"{name:10} {size:3} at once: {people / wall:7,.0f} people/s, "
                    f"CPU per person {own / people * 1e3:.3f} ms here, "
                    f"{theirs / people * 1e3:.3f} ms in the server"
                )
            counts = register.close_seats(ARMS)
            answered = sum(one.answered for one in counts.values())
            assert answered == people * len(sizes), counts


def main() -> None:
    """Measure both stores."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--people", type=int, default=4000)
    parser.add_argument("--sizes", default="1,8,64")
    asked = parser.parse_args()
    sizes = [int(size) for size in asked.sizes.split(",")]
    measure("SQLite", "", asked.people, sizes)
    with running_postgres() as server:
        measure("PostgreSQL", server.url, asked.people, sizes)


if __name__ == "__main__":
    main()
