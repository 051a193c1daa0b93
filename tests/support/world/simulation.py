"""One world from its first process to its last: faults happen, an operator resumes."""

from __future__ import annotations

import asyncio
import random
import secrets
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from tests.support.virtual_time import HangError
from tests.support.world.deployments import Hosted, live, serve
from tests.support.world.disk import leave_files_of, simulated_disks
from tests.support.world.invariants import finish_reason, problems
from tests.support.world.messages import MessageFaults
from tests.support.world.network import Network
from tests.support.world.processes import Process, WorldLoop
from tests.support.world.schedule import (
    EVERY_NODE,
    GRPC,
    MESSAGE_FAULTS,
    PHASE_FAULTS,
    REWARD_FAULTS,
    SERVER,
    SHUFFLE,
    SHUFFLER,
    Fault,
    Schedule,
    node_names,
)
from tests.support.world.shuffling import place_of, shuffle
from tests.support.world.threads import (
    ThreadsOfEachProcess,
    VirtualExecutor,
    VirtualThread,
)
from wallflower.clients.rewards.threads import RewardThreads
from wallflower.protocol.errors import JournalError, UnavailableError, WallflowerError
from wallflower.strategy.store.events import Event

_OURS = "wallflower"
_THREADING = SimpleNamespace(Thread=VirtualThread, Lock=threading.Lock)
_LONGEST_S = 4 * 3600.0  # of a world after its last fault
_RESUMES_IN_QUIET = 12
_RESTART_S = 2.0


@dataclass
class Outcome:
    """How a world ended, and what was wrong with it."""

    schedule: Schedule
    ended: str = ""
    reason: str | None = None  # what the journal says of the end
    starts: int = 0
    injected: Counter[str] = field(default_factory=Counter)
    broken: list[str] = field(default_factory=list)
    trace: list[str] = field(default_factory=list)


def simulate(schedule: Schedule, keep: Path | None = None) -> Outcome:
    """Run one world and check what must hold of it; its files can be kept."""
    folder = Path(tempfile.mkdtemp(prefix="world-", dir=_fast_disk()))
    world = _World(schedule, folder)
    try:
        with world.installed():
            loop = WorldLoop()
            loop.end_at(schedule.quiet_at + _LONGEST_S)
            loop.set_exception_handler(world.unheard)
            course = world.run()
            try:
                loop.run_until_complete(course)
            except HangError as hang:
                world.outcome.ended = "hang"
                world.outcome.broken.append(f"hang: {hang}")
                course.close()
            finally:
                world.bury()
                loop.close()
        world.outcome.reason = finish_reason(folder)
        world.outcome.broken += [
            f"{user} was shown an arm {times} times"
            for user, times in world.shown.items()
            if times > 1
        ]
        world.outcome.broken += [
            f"cohort {cohort_id} has {times} shuffled batches"
            for cohort_id, times in world.shuffled_batches.items()
            if times > 1
        ]
        world.outcome.broken += problems(
            schedule, folder, world.outcome.ended, world.shown
        )
        if keep is not None:
            shutil.copytree(folder, keep, dirs_exist_ok=True)
    finally:
        shutil.rmtree(folder)
    return world.outcome


class _World:
    def __init__(self, schedule: Schedule, folder: Path) -> None:
        self.schedule = schedule
        self.outcome = Outcome(schedule)
        self._folder = folder
        self._source = random.Random(f"course {schedule.seed}")
        self._network = Network(self._source)
        self._processes: dict[str, Process] = {}
        self._all: list[Process] = []
        self._hosted = Hosted()
        self._full: Counter[str] = Counter()
        self._server_ended: asyncio.Future[BaseException | str | None] | None = None
        self._resume_after = 0.0
        self._wrap = MessageFaults(schedule, self.outcome.injected)
        self._phases: Counter[str] = Counter()
        self.shuffled_batches: Counter[str] = Counter()  # by cohort

    @property
    def shown(self) -> Counter[str]:
        """How often each user was shown an arm."""
        return self._hosted.shown

    # --- around the loop

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Write the simulated ground under the real code."""
        drawn = random.Random(f"secrets {self.schedule.seed}")
        with ExitStack() as stack:
            stack.enter_context(simulated_disks())
            stack.enter_context(self._network.installed())
            patch = mock.patch.object
            stack.enter_context(patch(secrets, "token_bytes", drawn.randbytes))
            stack.enter_context(
                patch(secrets, "token_hex", lambda count: drawn.randbytes(count).hex())
            )
            for name, module in list(sys.modules.items()):
                if name.partition(".")[0] != _OURS:
                    continue
                for key, value in list(vars(module).items()):
                    if value is ThreadPoolExecutor:
                        stack.enter_context(patch(module, key, VirtualExecutor))
                    elif value is threading:
                        stack.enter_context(patch(module, key, _THREADING))
                    elif value is time:
                        stack.enter_context(patch(module, key, _VirtualClock()))
                    elif isinstance(value, RewardThreads):
                        own = ThreadsOfEachProcess()
                        stack.enter_context(patch(module, key, own))
                    elif isinstance(value, random.SystemRandom):
                        stack.enter_context(patch(module, key, drawn))
            yield

    def unheard(self, loop: asyncio.AbstractEventLoop, what: dict[str, object]) -> None:
        """Note an error that nobody took."""
        error = what.get("exception")
        if isinstance(error, WallflowerError):
            return  # of a process that ended on such an error: its last words
        self.outcome.broken.append(f"unheard: {what.get('message')} ({error!r})")

    def bury(self) -> None:
        """End every process that is left; take apart what the dead held."""
        for process in self._all:
            process.die()
            for connection in process.connections:
                connection.close()
        for process in self._all:
            process.bury()

    # --- the course of events

    async def run(self) -> None:
        """Start everything, let faults happen, resume until it is over."""
        loop = asyncio.get_running_loop()
        for fault in self.schedule.faults:
            self._plan(fault)
        if self.schedule.backend == SHUFFLE:
            place_of(self.schedule, self._folder)
            self._start(SHUFFLER)
        if self.schedule.transport == GRPC:
            for name in node_names(self.schedule.nodes):
                self._start(name)
        left = _RESUMES_IN_QUIET
        while left:
            self.outcome.starts += 1
            self._server_ended = loop.create_future()
            self._resume_after = self._source.uniform(0.5, 10.0)
            self._start(SERVER)
            end = await self._server_ended
            self._tell(f"server: {_name(end)}")
            if end is None:
                self.outcome.ended = "finished"
                return
            if isinstance(end, UnavailableError | JournalError):
                self.outcome.ended = f"exit {end.exit_code}"
            elif isinstance(end, BaseException):
                self.outcome.ended = f"error {type(end).__name__}"
                self.outcome.broken.append(f"the server failed: {end!r}")
                return
            left -= loop.time() > self.schedule.quiet_at
            await asyncio.sleep(self._resume_after)

    def _start(self, name: str) -> None:
        home = self._folder / name
        home.mkdir(exist_ok=True)
        source = random.Random(f"{self.schedule.seed} {name} {len(self._all)}")
        process = Process(name, home, source)
        old = self._processes.get(name)
        process.disk_full = self._full[name] > 0
        process.writes = 0 if old is None else old.writes
        process.wrote = self._wrote
        self._processes[name] = process
        self._all.append(process)
        loop = asyncio.get_running_loop()
        assert isinstance(loop, WorldLoop)
        if name == SERVER:
            work = serve(self.schedule, home, self._wrap, self._listen, self._hosted)
            loop.spawn(process, work).add_done_callback(self._server_over)
        else:
            work = (
                shuffle(self.schedule, home, self._reached, self.shuffled_batches)
                if name == SHUFFLER
                else live(self.schedule, name, home, self._hosted.shown)
            )
            loop.spawn(process, work).add_done_callback(
                lambda task: self._node_over(name, task)
            )

    def _server_over(self, task: asyncio.Task[None]) -> None:
        end = task.exception()
        self._processes[SERVER].die()
        self._release(self._processes[SERVER])
        if self._server_ended is not None and not self._server_ended.done():
            self._server_ended.set_result(end)

    def _node_over(self, name: str, task: asyncio.Task[None]) -> None:
        error = task.exception()
        self._tell(f"{name}: {_name(error)}")
        self._processes[name].die()
        self._release(self._processes[name])
        if error is None:
            return
        if not isinstance(error, WallflowerError):
            self.outcome.broken.append(f"{name} failed: {error!r}")
        asyncio.get_running_loop().call_later(_RESTART_S, self._start, name)

    def _release(self, process: Process) -> None:
        for connection in process.connections:
            connection.close()

    async def _listen(self, event: Event) -> None:
        if type(event).__name__ != "CohortProgress":
            self._tell(f"{type(event).__name__} {getattr(event, 'cohort_id', '')}")

    def _tell(self, what: str) -> None:
        self.outcome.trace.append(f"{asyncio.get_running_loop().time():.3f} {what}")

    # --- faults

    def _plan(self, fault: Fault) -> None:
        if fault.kind in REWARD_FAULTS:
            self.outcome.injected[fault.kind] += 1
        elif fault.kind not in (*MESSAGE_FAULTS, *PHASE_FAULTS, "torn-write"):
            asyncio.get_running_loop().call_at(fault.at, self._strike, fault)

    def _wrote(self, process: Process) -> None:
        """A transaction was written and nobody heard of it yet: the time to die."""
        for fault in self.schedule.faults:
            if (
                fault.kind == "torn-write"
                and fault.target == process.name
                and process.writes == fault.at
            ):
                now = asyncio.get_running_loop().time()
                self._network.at(now, self._kill, fault, process)

    def _reached(self, phase: str) -> None:
        """The shuffler has just done something: the time to die, for it or another."""
        self._phases[phase] += 1
        for fault in self.schedule.faults:
            if (fault.kind, fault.at) == (f"killed-at-{phase}", self._phases[phase]):
                now = asyncio.get_running_loop().time()
                target = self._processes.get(fault.target)
                self._network.at(now, self._kill, fault, target)

    def _strike(self, fault: Fault) -> None:
        kind, lasts = fault.kind, fault.lasts
        if kind in ("killed", "power-cut"):
            self._kill(fault, self._processes.get(fault.target))
        elif kind == "stopped":
            process = self._processes[fault.target]
            if process.alive and not process.stopped:
                process.stopped = True
                self._count(fault)
                asyncio.get_running_loop().call_later(lasts, process.go_on)
        elif kind == "disk-full":
            self._fill(fault.target, +1)
            self._count(fault)
            asyncio.get_running_loop().call_later(lasts, self._fill, fault.target, -1)
        else:
            for name in self._struck(fault):
                self._line(kind, name, lasts)
            self._count(fault)

    def _kill(self, fault: Fault, process: Process | None) -> None:
        if process is None or not process.alive:
            return
        process.die()
        torn = 0
        if process.name != SHUFFLER:  # whose files are whole: it makes empty ones
            tears = fault.kind == "torn-write"
            torn = leave_files_of(process, self._source, torn=tears)
        self._count(fault)
        self.outcome.injected["files torn"] += torn
        self._network.process_died(process, power=fault.kind == "power-cut")
        if process.name != SERVER:
            loop = asyncio.get_running_loop()
            loop.call_later(fault.lasts + _RESTART_S, self._start, process.name)
        elif self._server_ended is not None and not self._server_ended.done():
            self._resume_after = fault.lasts + _RESTART_S
            self._server_ended.set_result("killed")

    def _line(self, kind: str, name: str, lasts: float) -> None:
        loop = asyncio.get_running_loop()
        if self.schedule.transport != GRPC:
            self._hosted.away.add(name)
            loop.call_later(lasts, self._hosted.away.discard, name)
            return
        if kind == "half-open":
            hears = self._source.random() < 0.5
            self._network.reset(name, node_hears=hears, server=not hears)
            return
        link = self._network.link(name)
        link.cut()
        loop.call_later(lasts, link.mend)
        if kind == "flap":
            self._network.reset(name)

    def _struck(self, fault: Fault) -> Sequence[str]:
        everyone = node_names(self.schedule.nodes)
        return everyone if fault.target == EVERY_NODE else (fault.target,)

    def _fill(self, name: str, change: int) -> None:
        self._full[name] += change
        if name in self._processes:
            self._processes[name].disk_full = self._full[name] > 0

    def _count(self, fault: Fault) -> None:
        self.outcome.injected[fault.kind] += 1
        self._tell(f"fault: {fault}")


class _VirtualClock:
    """The module `time`, whose monotonic clock is the world's."""

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()


def _name(end: object) -> object:
    return type(end).__name__ if isinstance(end, BaseException) else end


def _fast_disk() -> str | None:
    """Prefer memory: every flush to a real disk would be waited for."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None
