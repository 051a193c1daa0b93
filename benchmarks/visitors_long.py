"""``make bench-people``: one run of many people, a worker killed every minute.

People come by HTTP to two workers of `wallflower serve`, as fast as they are served.
Each has an invitation, signatures and an encrypted answer of their own. An orchestrator
with trustees opens and closes the rounds. Every minute a worker gets SIGKILL. A line
says how many people were told that they count, the memory of each process and the size
of the store. At the end the store is compared with what people were told and sent.
Then `wallflower verify` checks the record in a process of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import psutil
import psycopg

from benchmarks.visitors import serving
from tests.support.postgres_server import PostgresServer, running_store
from tests.support.run_fixtures import command, environment
from tests.support.visitor_soak import (
    ARMS,
    RUN,
    Orchestrator,
    People,
    judge,
)
from wallflower.engines.arrivals import Keys
from wallflower.protocol.files.keyfiles import public_key_pem
from wallflower.protocol.files.sections import RewardSettings
from wallflower.protocol.visitors import INVITED
from wallflower.strategy.config import (
    ExperimentConfig,
    ExperimentSettings,
    PolicySettings,
)
from wallflower.strategy.sections import StoreSettings, VisitorSettings
from wallflower.strategy.store.journal import Journal

_AT_ONCE, _FIRST_BATCH = 48, 5_000
_KILL_EVERY_S = 60.0
_MB = 2**20
_FEW = 200  # seats that a horizon may leave over, too few for a round


@dataclass(slots=True)
class Watched:
    """The processes and the store of one run, as seen every minute."""

    run_dir: Path
    serve: int
    orchestrator: Orchestrator
    postgres: PostgresServer | None
    kills: int = 0

    def memory_mb(self) -> str:
        """Return the resident memory of workers, orchestrator and database."""
        workers = " + ".join(
            f"{_resident(child):.0f}" for child in psutil.Process(self.serve).children()
        )
        pid = self.orchestrator.pid
        orchestrator = 0.0 if pid is None else _resident(psutil.Process(pid))
        return f"workers {workers} MB, orchestrator {orchestrator:.0f} MB"

    def store_mb(self) -> float:
        """Return the size of the store."""
        if self.postgres is None:
            return sum(p.stat().st_size for p in self.run_dir.glob("*.sqlite*")) / _MB
        with psycopg.connect(self.postgres.url) as connection:
            query = "SELECT pg_database_size(current_database())"
            [(size,)] = connection.execute(query).fetchall()
        return float(size) / _MB

    def kill_worker(self, draw: random.Random) -> None:
        """Kill one worker, whatever it does."""
        with contextlib.suppress(psutil.NoSuchProcess, IndexError):
            draw.choice(psutil.Process(self.serve).children()).kill()
            self.kills += 1


async def watch(seen: Watched, people: People) -> None:
    """Kill a worker and print a line, every minute."""
    begun, draw = time.monotonic(), random.Random(1)
    while True:
        await asyncio.sleep(_KILL_EVERY_S)
        size = await asyncio.to_thread(seen.store_mb)
        minutes = (time.monotonic() - begun) / 60
        print(
            f"{minutes:5.1f} min: {len(people.told):9,} people, {seen.memory_mb()}, "
            f"store {size:,.0f} MB",
            flush=True,
        )
        seen.kill_worker(draw)


async def run(
    folder: Path, count: int, minutes: float, postgres: PostgresServer | None
) -> int:
    """Let so many people take part, or those of so many minutes; return the wrong."""
    run_dir = folder / "run"
    run_dir.mkdir()
    keys = Keys.keep(INVITED, run_dir)
    inviter = folder / "inviter.pub"
    inviter.write_bytes(public_key_pem(keys.inviter_key))
    url = "" if postgres is None else postgres.url
    config = ExperimentConfig(
        ExperimentSettings(RUN, ARMS, horizon=count),
        policy=PolicySettings(first_batch=_FIRST_BATCH, ratio=Fraction(11, 10)),
        rewards=RewardSettings(means=(0.5, 0.5)),
        visitors=VisitorSettings(INVITED, inviter=inviter, answer_s=60),
        store=StoreSettings(url),
    )
    Journal.create(run_dir, RUN, config, "deployment").close()
    orchestrator = Orchestrator(run_dir, may_end=True)
    keeping = asyncio.create_task(orchestrator.keep())
    begun = time.monotonic()
    async with serving(run_dir, 2) as (port, pid):
        people = People(port, keys, random.Random(7), _AT_ONCE, think_s=0.0)
        seen = Watched(run_dir, pid, orchestrator, postgres)
        watching = asyncio.create_task(watch(seen, people))
        asyncio.get_running_loop().call_later(60 * minutes, people.end)
        await people.come()
        took_s = time.monotonic() - begun
        print(f"at the end: {seen.memory_mb()}, store {seen.store_mb():,.0f} MB")
        watching.cancel()
    if people.over:  # in the middle of a round
        keeping.cancel()
    await asyncio.wait([keeping])
    found = judge(run_dir, people)
    print(
        f"{len(people.told):,} people told that they count in {took_s:,.0f} s, "
        f"{found.seated:,} seated, {found.sums} sums, {seen.kills} workers killed\n"
        f"lost {found.lost}, twice {found.twice}, wrong sums {found.wrong_sums}, "
        f"false ends {orchestrator.false_ends}, record {found.problems}; "
        f"replies {dict(people.became)}",
        flush=True,
    )
    _check_record(run_dir)
    wrong = found.lost + found.twice + found.wrong_sums + found.problems
    wrong += max(0, count - _FEW - len(people.told)) * (not people.over)
    return wrong + orchestrator.false_ends


def _check_record(run_dir: Path) -> None:
    """Verify the record as an auditor does; print what it takes."""
    begun = time.monotonic()
    with subprocess.Popen(
        command("verify", run_dir), env=environment(), stdout=subprocess.DEVNULL
    ) as process:
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    print(
        f"verify: exit {process.returncode}, {time.monotonic() - begun:.1f} s, CPU "
        f"{used.ru_utime + used.ru_stime:.1f} s, {used.ru_maxrss / 1024:.0f} MB"
    )


def _resident(process: psutil.Process) -> float:
    try:
        return float(process.memory_info().rss) / _MB
    except psutil.NoSuchProcess:
        return 0.0


def main(words: Sequence[str] | None = None) -> int:
    """Run once for each number of people."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--people", default="1000000")
    parser.add_argument("--store", choices=("sqlite", "postgresql"), default="sqlite")
    parser.add_argument("--minutes", type=float, default=600.0)
    given = parser.parse_args(words)
    wrong = 0
    for count in map(int, given.people.split(",")):
        print(f"{count:,} people, {given.store}", flush=True)
        with (
            running_store(given.store) as postgres,
            tempfile.TemporaryDirectory(prefix="visitors-long-") as folder,
        ):
            wrong += asyncio.run(run(Path(folder), count, given.minutes, postgres))
    return min(1, wrong)


if __name__ == "__main__":
    sys.exit(main())
