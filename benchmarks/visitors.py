"""``make bench-visitors``: people a second, seconds to a reply, and CPU by part.

A run with one round of seats, on either store, is served by `wallflower serve` in
processes of its own; visitors come from this one. Some of them misbehave
(`visitors_load.MIX`). Printed are the CPU of all server processes per person, by part;
how many people a second are served when as many come as the server takes; the seconds
from arriving to the reply at several rates of a Poisson process. At the end the store
is compared with what visitors were told.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.visitors_load import (
    Load,
    Prepared,
    arrive_as_fast_as_served,
    arrive_by_poisson,
    prepare,
)
from tests.support.postgres_server import PostgresServer, running_store
from tests.support.run_fixtures import command, environment
from tests.support.seat_server import SeatServer
from tests.support.seated_sums import SeatedRun

_ARMS = 2
_AT_ONCE = 32
_MOST_MS = 100.0


@dataclass(frozen=True, slots=True)
class Cpu:
    """CPU seconds of all processes of the server, by part."""

    loops: float  # HTTP, checks: each worker's event loop
    store: float  # each worker's threads for the database
    database: float  # PostgreSQL
    parent: float

    @classmethod
    def now(cls, parent: psutil.Process, postgres: PostgresServer | None) -> Cpu:
        """Read what was used until now."""
        loops = store = 0.0
        for worker in parent.children():
            for thread in worker.threads():
                used = thread.user_time + thread.system_time
                if thread.id == worker.pid:
                    loops += used
                else:
                    store += used
        database = 0.0 if postgres is None else postgres.cpu_s()
        times = parent.cpu_times()
        return cls(loops, store, database, times.user + times.system)

    def per_person_ms(self, before: Cpu, people: int) -> dict[str, float]:
        """Return milliseconds per person since an earlier moment."""
        parts = {
            "HTTP and checks": self.loops - before.loops,
            "store": self.store - before.store,
            "PostgreSQL": self.database - before.database,
            "parent": self.parent - before.parent,
        }
        parts["all"] = sum(parts.values())
        return {name: 1e3 * used / people for name, used in parts.items()}


@asynccontextmanager
async def serving(run_dir: Path, workers: int) -> AsyncIterator[tuple[int, int]]:
    """Serve a run; give the port and the process."""
    process = await asyncio.create_subprocess_exec(
        *command("serve", run_dir, "--workers", str(workers), "--port", "0"),
        "--no-orchestrator",
        *("--proxy", "127.0.0.1"),
        env=environment(),
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        said = (await process.stdout.readline()).decode()
        found = re.search(r":(\d+)$", said.strip())
        assert found is not None, said
        yield int(found[1]), process.pid
    finally:
        process.terminate()
        await process.wait()


def percentile(seconds: Sequence[float], share: float) -> float:
    """Return a percentile in milliseconds."""
    ordered = sorted(seconds)
    return 1e3 * ordered[min(len(ordered) - 1, int(share * len(ordered)))]


async def measure(
    server: SeatServer,
    postgres: PostgresServer | None,
    people: list[Prepared],
    workers: int,
    rates: Sequence[float],
    seconds: float,
) -> int:
    """Serve all people with so many workers, print what was seen; return the wrong."""
    load_sets: list[Load] = []
    async with serving(server.run_dir, workers) as (port, pid):
        parent, warm = psutil.Process(pid), Load(port)
        await arrive_as_fast_as_served(warm, people[:200], _AT_ONCE)
        load_sets.append(warm)
        fast, left = people[200:3200], people[3200:]
        before, load = Cpu.now(parent, postgres), Load(port)
        took_s = await arrive_as_fast_as_served(load, fast, _AT_ONCE)
        used = Cpu.now(parent, postgres).per_person_ms(before, len(fast))
        load_sets.append(load)
        parts = ", ".join(f"{name} {value:.2f}" for name, value in used.items())
        print(f"{workers} workers: {len(fast) / took_s:,.0f} people/s; CPU ms {parts}")
        for rate in rates:
            count = int(rate * seconds)
            chosen, left = left[:count], left[count:]
            load = Load(port)
            await arrive_by_poisson(load, chosen, rate, seed=int(rate))
            load_sets.append(load)
            p50, p99 = (percentile(load.arrived_s, share) for share in (0.5, 0.99))
            kept = "" if p99 <= _MOST_MS else "  (over)"
            print(f"  {rate:4g}/s: arriving p50 {p50:.1f} ms, p99 {p99:.1f} ms{kept}")
            if p99 > _MOST_MS:
                break
    told = set().union(*(load.taken for load in load_sets))
    return report_store(server, told)


def report_store(server: SeatServer, told: set[bytes]) -> int:
    """Compare the store with what visitors were told; return how many differ."""
    closed = server.register.close_seats(server.open).values()
    stored = sum(counts.answered for counts in closed)
    print(f"  told {len(told):,} that they are counted; {stored:,} are in the store")
    return abs(len(told) - stored)


async def main(store: str, workers: int, rates: Sequence[float], seconds: float) -> int:
    """Measure so many workers on a run of its own."""
    needed = 3200 + int(sum(rates) * seconds)
    with running_store(store) as postgres, tempfile.TemporaryDirectory() as folder:
        run = SeatedRun("invited", seats=needed // _ARMS + 1)
        url = "" if postgres is None else postgres.url
        server = SeatServer(Path(folder) / "run", run, store=url)
        names = server.open_round(_ARMS)
        cohorts = [run.cohort(name, arm) for arm, name in enumerate(names)]
        begun = time.perf_counter()
        people = prepare(server, cohorts, needed, seed=1)
        print(
            f"made {needed:,} visitors in {time.perf_counter() - begun:.0f} s",
            file=sys.stderr,
        )
        wrong = await measure(server, postgres, people, workers, rates, seconds)
        server.close()
    return wrong


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", default="1,2")
    parser.add_argument("--rates", default="100,200,300,400")
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--stores", default="sqlite,postgresql")
    given = parser.parse_args()
    stated = [float(rate) for rate in given.rates.split(",")]
    wrong = 0
    for store in given.stores.split(","):
        for count in map(int, given.workers.split(",")):
            print(store, end=", ", flush=True)
            wrong += asyncio.run(main(store, count, stated, given.seconds))
    sys.exit(min(1, wrong))
