"""Threads without threads: work of executors runs inline and takes virtual time.

A worker is busy from the start of its work to its end, also while the work blocks
(`block`), so that a pool runs out of workers as a real one does. Nobody hears of the
result, and nothing that a thread says to the loop is heard, before the work's end: a
process that dies meanwhile has written and never knew it.
"""

from __future__ import annotations

import asyncio
import functools
import math
import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import Context
from pathlib import Path
from typing import Any

from tests.support.world.processes import PROCESS

_DEFAULT_WORKERS = 6  # of asyncio's own pool on a machine with two cores
_running: list[Job] = []


class Job:
    """One piece of work in a thread."""

    def __init__(self, work: Callable[[], Any], executor: VirtualExecutor) -> None:
        self.work = work
        self.future = _Forced(executor)
        self.received: list[tuple[Callable[..., object], Any, Context]] = []
        self.blocked_s = 0.0
        self.ran = False
        self.over = False
        self.grown: dict[str, tuple[int, int]] = {}  # write-ahead logs: from, to
        self.counted: dict[str, tuple[bytes, bytes]] = {}  # counters: old, new
        self._result: Any = None
        self._error: BaseException | None = None

    def run(self) -> None:
        """Do the work; keep its result for its end."""
        self.ran = True
        if not self.future.set_running_or_notify_cancel():
            return
        process = PROCESS.get()
        counted: dict[str, bytes] = {}
        before = {} if process is None else _logs(process.home, counted)
        _running.append(self)
        try:
            self._result = self.work()
        except BaseException as error:
            self._error = error
        finally:
            _running.pop()
        if process is None:
            return
        counters: dict[str, bytes] = {}
        for path, size in _logs(process.home, counters).items():
            if size > before.get(path, 0):
                self.grown[path] = before.get(path, 0), size
        for path, content in counters.items():
            if content != counted.get(path, b""):
                self.counted[path] = counted.get(path, b""), content
        process.jobs.append(self)
        if self.grown:
            process.writes += 1
            process.wrote(process)

    def end(self) -> None:
        """Publish the result."""
        self.over = True
        process = PROCESS.get()
        if process is not None and self in process.jobs:
            process.jobs.remove(self)
        if self.future.cancelled():
            return
        for callback, args, where in self.received:
            asyncio.get_running_loop().call_soon(callback, *args, context=where)
        if self._error is not None:
            self.future.set_exception(self._error)
        else:
            self.future.set_result(self._result)


class _Forced(Future[Any]):
    """A future whose `result` makes the work happen instead of waiting for it."""

    def __init__(self, executor: VirtualExecutor) -> None:
        super().__init__()
        self._executor = executor

    def result(self, timeout: float | None = None) -> Any:
        if not self.done():
            self._executor.hurry(self)
        return super().result(0)


class VirtualExecutor:
    """Stands in for `ThreadPoolExecutor`."""

    def __init__(self, max_workers: int | None = None, *_: Any, **__: Any) -> None:
        self._workers = max_workers or _DEFAULT_WORKERS
        self._busy = 0
        self._queue: deque[Job] = deque()
        self._started: list[Job] = []

    def submit(
        self, function: Callable[..., Any], /, *args: Any, **named: Any
    ) -> Future[Any]:
        """Queue work for the next free worker."""
        job = Job(functools.partial(function, *args, **named), self)
        self._queue.append(job)
        self._start_more()
        return job.future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the workers; what waits is done first, or cancelled."""
        if cancel_futures:
            for job in self._queue:
                job.future.cancel()
            self._queue.clear()
        elif wait:
            for job in [*self._started, *self._queue]:
                if not math.isinf(job.blocked_s):
                    self.hurry(job.future)

    def hurry(self, future: Future[Any]) -> None:
        """Do everything up to this piece of work at once."""
        for job in [*self._started, *self._queue]:
            if job in self._queue:
                self._queue.remove(job)
                self._busy += 1
                self._started.append(job)
            if not job.ran:
                job.run()
            self._end(job)
            if job.future is future:
                return

    def _start_more(self) -> None:
        while self._queue and self._busy < self._workers:
            job = self._queue.popleft()
            self._busy += 1
            self._started.append(job)
            asyncio.get_running_loop().call_later(_pause(), self._start, job)

    def _start(self, job: Job) -> None:
        if job.ran:
            return
        job.run()
        if not math.isinf(job.blocked_s):
            loop = asyncio.get_running_loop()
            loop.call_later(_pause() + job.blocked_s, self._end, job)

    def _end(self, job: Job) -> None:
        if job.over:
            return
        job.end()
        self._busy -= 1
        self._started.remove(job)
        self._start_more()


class VirtualThread:
    """Stands in for `threading.Thread`: its target runs as one piece of work."""

    def __init__(self, *, target: Callable[[], None], **_: object) -> None:
        self._target = target

    def start(self) -> None:
        """Run the target soon."""
        VirtualExecutor(1).submit(self._target)


class ThreadsOfEachProcess:
    """Stands in for the one `RewardThreads` of a process: a thread for every call."""

    def call(
        self, function: Callable[..., Any], *arguments: object
    ) -> asyncio.Future[object]:
        """Call a function in a thread of its own."""
        return asyncio.wrap_future(VirtualExecutor(1).submit(function, *arguments))


def running_job() -> Job | None:
    """Return the work that is being done now, or None on the event loop itself."""
    return _running[-1] if _running else None


def block(seconds: float) -> None:
    """Sleep in a thread, perhaps for ever; on the event loop that is a fault."""
    job = running_job()
    assert job is not None, "the event loop was blocked"
    job.blocked_s += seconds


def _pause() -> float:
    """Draw how long a disk or a thread lets others wait."""
    process = PROCESS.get()
    return 0.0 if process is None else 0.0005 + 0.01 * process.source.random()


def _logs(home: Path, counters: dict[str, bytes]) -> dict[str, int]:
    """Measure the write-ahead logs of a home; read its counters."""
    sizes = {}
    with os.scandir(home) as files:
        for file in files:
            if file.name.endswith("-wal"):
                sizes[file.path] = file.stat().st_size
            elif file.name.endswith(".counter"):
                counters[file.path] = Path(file.path).read_bytes()
    return sizes
