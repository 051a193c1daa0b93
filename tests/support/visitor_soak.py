"""Kills while people arrive: ``python -m tests.support.visitor_soak SEED KILLS STORE``.

Workers, the orchestrator and, if STORE is ``postgresql``, the database of one run are
killed (SIGKILL) at moments that a seed draws, while people come all the time. Everybody
has one invitation and tries again until they have their reply. At the end the store is
compared with what people were told, and every sum with what they sent.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path

import psutil

from benchmarks.visitors import serving
from benchmarks.visitors_load import Load, Sealer
from tests.support.postgres_server import PostgresServer, running_store
from tests.support.run_fixtures import environment
from tests.support.seated_sums import Person
from wallflower.engines.arrivals import Keys
from wallflower.protocol.cohort import cohort_mechanism
from wallflower.protocol.files.keyfiles import public_key_pem
from wallflower.protocol.files.sections import RewardSettings
from wallflower.protocol.identity.enrolment import EnrolmentKey
from wallflower.protocol.visitors import ARRIVAL_BYTES, INVITED, Invitation
from wallflower.protocol.wire.node_pb2 import NodeRequest
from wallflower.serve.orchestrator import TRY_AGAIN
from wallflower.strategy.config import (
    ExperimentConfig,
    ExperimentSettings,
    PolicySettings,
)
from wallflower.strategy.run.verify import verify
from wallflower.strategy.sections import StoreSettings, VisitorSettings
from wallflower.strategy.store.journal import Journal
from wallflower.strategy.store.run_store import is_held
from wallflower.strategy.store.seat_store import SeatStore
from wallflower.strategy.store.seats import RUN_OVER, SeatedCohort

RUN = "soak"
ARMS = ("a", "b")
_KILLED = -9


@dataclass
class People:
    """People who come one after another, what each sent, and who was told to count."""

    port: int
    keys: Keys
    draw: random.Random
    at_once: int = 12
    think_s: float = 0.25
    sent: dict[str, int] = field(default_factory=dict)
    told: dict[str, str] = field(default_factory=dict)  # visitor → cohort
    became: Counter[str] = field(default_factory=Counter)
    over: bool = False
    _sealers: dict[str, Sealer] = field(default_factory=dict)

    def end(self) -> None:
        """Let nobody else come."""
        self.over = True

    async def come(self) -> None:
        """Let people come until it is over; who has begun ends."""
        load = Load(self.port)
        async with asyncio.TaskGroup() as group:
            for _ in range(self.at_once):
                group.create_task(self._come(load))

    async def _come(self, load: Load) -> None:
        inviter = EnrolmentKey.from_private_bytes(self.keys.inviter)
        while not self.over:
            identity = Invitation.issue(inviter, not_after=2_000_000_000).identity
            arrival = self.draw.randbytes(ARRIVAL_BYTES)
            person = Person(identity.node_id, identity, arrival)
            reply = await load.poll(person.arriving(RUN).SerializeToString())
            if reply.WhichOneof("kind") != "seat":
                self.became[reply.no_seat.reason or reply.refused.code] += 1
                if reply.no_seat.reason == RUN_OVER:
                    return
                await asyncio.sleep(0.1)
                continue
            (task,) = NodeRequest.FromString(reply.seat.request).tasks
            cohort_id = task.task_id
            if cohort_id not in self._sealers:
                terms = reply.seat.request
                cohort = SeatedCohort(cohort_id, 0, 0, terms, 0.0, 0.0)
                self._sealers[cohort_id] = Sealer(cohort, RUN)
            precision = cohort_mechanism(task.stage.spec).precision
            self.sent[person.name] = self.draw.randint(0, precision)
            await asyncio.sleep(self.think_s * self.draw.random())
            body = self._sealers[cohort_id].seal(person, self.sent[person.name])
            reply = await load.poll(body)
            self.became[reply.refused.code or reply.WhichOneof("kind") or ""] += 1
            if reply.WhichOneof("kind") == "taken":
                self.told[person.name] = cohort_id


class Orchestrator:
    """A process that is started again whenever it was killed."""

    def __init__(self, run_dir: Path, *, may_end: bool = False) -> None:
        self._run_dir, self._may_end = run_dir, may_end
        self._process: asyncio.subprocess.Process | None = None
        self.false_ends = self.without_store = 0

    @property
    def pid(self) -> int | None:
        """The process, while there is one."""
        process = self._process
        return process.pid if process and process.returncode is None else None

    async def keep(self) -> None:
        """Start it until the run is over; any other end by itself is a false one."""
        words = ("-m", "tests.support.seated_orchestrator", str(self._run_dir))
        while True:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, *words, env=environment()
            )
            try:
                code = await self._process.wait()
            except asyncio.CancelledError:
                with contextlib.suppress(ProcessLookupError):
                    self._process.kill()
                await self._process.wait()
                raise
            if code == 0 and self._may_end:
                return
            self.without_store += code == TRY_AGAIN
            self.false_ends += code not in (_KILLED, TRY_AGAIN)

    async def kill(self, after_s: float) -> None:
        """Kill it so long after it began to work, wherever it is then."""
        while not await asyncio.to_thread(is_held, self._run_dir):  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        await asyncio.sleep(after_s)
        if self._process is not None and self._process.returncode is None:
            self._process.kill()


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the store says beside what people were told; all zero but `sums`."""

    lost: int
    twice: int
    wrong_sums: int
    problems: int
    sums: int
    seated: int


def judge(run_dir: Path, people: People) -> Verdict:
    """Compare the store with what people were told and what they sent."""
    with SeatStore.open(run_dir) as store:
        rows = store.database.rows(
            "SELECT seated.cohort_id, seat.visitor, seat.state FROM seat JOIN seated "
            "ON seated.number = seat.cohort WHERE seat.visitor IS NOT NULL"
        )
    answered = {(visitor, cohort) for cohort, visitor, how in rows if how == "answered"}
    seats = Counter(visitor for _, visitor, _ in rows)
    sums: Counter[str] = Counter()
    for visitor, cohort in answered:
        sums[cohort] += people.sent[visitor]
    with Journal.read(run_dir) as journal:
        checks = verify(journal)
        found = [one.result for one in journal.cohorts() if one.result is not None]
    for problem in (problem for check in checks for problem in check.problems):
        print(f"record: {problem}")
    return Verdict(
        lost=sum(pair not in answered for pair in people.told.items()),
        twice=sum(count - 1 for count in seats.values()),
        wrong_sums=sum(one.released != sums[one.cohort_id] for one in found),
        problems=sum(len(check.problems) for check in checks),
        sums=len(found),
        seated=len(rows),
    )


async def soak(seed: int, kills: int, postgres: PostgresServer | None) -> int:
    """Kill so often, print the counts; return how many of them should be zero."""
    draw, killed = random.Random(seed), Counter[str]()
    with tempfile.TemporaryDirectory(prefix="visitor-soak-") as name:
        run_dir = Path(name) / "run"
        run_dir.mkdir()
        keys = Keys.keep(INVITED, run_dir)
        inviter = Path(name) / "inviter.pub"
        inviter.write_bytes(public_key_pem(keys.inviter_key))
        url = "" if postgres is None else postgres.url
        Journal.create(run_dir, RUN, _experiment(inviter, url), "deployment").close()
        orchestrator = Orchestrator(run_dir)
        keeping = asyncio.create_task(orchestrator.keep())
        async with serving(run_dir, 2) as (port, pid):
            people = People(port, keys, draw)
            coming = asyncio.create_task(people.come())
            for number in range(kills):
                victims = psutil.Process(pid).children()
                if postgres is not None and draw.random() < 0.2:
                    await asyncio.sleep(draw.uniform(0.2, 3.0))
                    await asyncio.to_thread(postgres.restart)
                    killed["database"] += 1
                elif draw.random() < 0.3 or not victims:
                    await orchestrator.kill(draw.uniform(0.0, 8.0))
                    killed["orchestrator"] += 1
                else:
                    await asyncio.sleep(draw.uniform(0.2, 3.0))
                    with contextlib.suppress(psutil.NoSuchProcess):
                        draw.choice(victims).kill()
                    killed["worker"] += 1
                if number % 20 == 19:
                    counted = f"{len(people.told):,} counted"
                    print(f"{number + 1} kills, {counted}", flush=True)
            people.end()
            await coming
        keeping.cancel()
        await asyncio.wait([keeping])
        found = judge(run_dir, people)
    print(
        f"{killed['worker']} workers, {killed['orchestrator']} orchestrators and "
        f"{killed['database']} databases killed; {orchestrator.without_store} "
        f"orchestrators waited for their store; {len(people.told):,} people told that "
        f"they count, {found.seated:,} seated, {found.sums} sums\n"
        f"lost {found.lost}, twice {found.twice}, "
        f"wrong sums {found.wrong_sums}, false ends {orchestrator.false_ends}, record "
        f"{found.problems}; replies {dict(people.became)}"
    )
    wrong = found.lost + found.twice + found.wrong_sums + found.problems
    return wrong + orchestrator.false_ends + (found.sums == 0)


def _experiment(inviter: Path, url: str) -> ExperimentConfig:
    return ExperimentConfig(
        ExperimentSettings(RUN, ARMS, horizon=10**6),
        # Rounds that soon took longer than the time between kills would never end.
        policy=PolicySettings(first_batch=30, ratio=Fraction(11, 10)),
        rewards=RewardSettings(means=(0.5, 0.5)),
        visitors=VisitorSettings(INVITED, inviter=inviter, answer_s=60),
        store=StoreSettings(url),
    )


if __name__ == "__main__":
    with running_store(sys.argv[3]) as server:
        wrong = asyncio.run(soak(int(sys.argv[1]), int(sys.argv[2]), server))
    sys.exit(min(1, wrong))
