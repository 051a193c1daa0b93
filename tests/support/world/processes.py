"""Processes inside one event loop: they can die or be stopped between two callbacks.

Every callback belongs to the process in whose context it was scheduled. Once that is
dead its callbacks are dropped: no `finally` runs, nothing is closed or told, as with
SIGKILL. While it is stopped they wait, as with SIGSTOP.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import sqlite3
import weakref
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.virtual_time import VirtualTimeLoop

if TYPE_CHECKING:
    from tests.support.world.threads import Job


class Process:
    """One operating-system process, with its home on a disk.

    Parameters
    ----------
    name : str
        ``server`` or a node's.
    home : Path
        Where its files lie; only this process opens them.
    source : random.Random
        How long its disk and its threads take.
    """

    def __init__(self, name: str, home: Path, source: random.Random) -> None:
        self.name = name
        self.home = home
        self.source = source
        self.alive = True
        self.stopped = False
        self.disk_full = False
        self.writes = 0
        self.wrote: Callable[[Process], None] = lambda process: None
        self.connections: list[sqlite3.Connection] = []
        self.jobs: list[Job] = []  # begun, and nobody heard of their end yet
        self.own: dict[str, Any] = {}  # what a module keeps once a process
        self._backlog: list[tuple[_Guarded, Any]] = []
        self._tasks: weakref.WeakSet[asyncio.Task[Any]] = weakref.WeakSet()
        self._left: list[asyncio.Task[Any]] = []

    def adopt(self, task: asyncio.Task[Any]) -> None:
        """Note a task that runs in this process."""
        self._tasks.add(task)

    def later(self, callback: _Guarded, args: Any) -> None:
        """Keep a callback until the process goes on."""
        self._backlog.append((callback, args))

    def go_on(self) -> None:
        """End a stop; what waited happens now, in its order."""
        self.stopped = False
        waited, self._backlog = self._backlog, []
        for callback, args in waited:
            loop = asyncio.get_running_loop()
            loop.call_soon(callback, *args, context=callback.where)

    def die(self) -> None:
        """End at once. What it held in memory is kept from being tidied up."""
        self.alive = False
        self._backlog.clear()
        self._left = [task for task in self._tasks if not task.done()]

    def bury(self) -> None:
        """Take the dead coroutines apart, after the world's end."""
        for task in self._left:
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            for _ in range(10):  # a `finally` that waits refuses the first tries
                with contextlib.suppress(BaseException):
                    task.get_coro().close()
                    break
        self._left.clear()


PROCESS: ContextVar[Process | None] = ContextVar("process", default=None)


class WorldLoop(VirtualTimeLoop):
    """Virtual time on which processes live and die."""

    def __init__(self) -> None:
        super().__init__()
        self.set_task_factory(_adopted)  # type: ignore[arg-type]

    def _check_closed(self) -> None:
        """Ignore what dead processes still send after the world's end."""

    def call_soon(  # type: ignore[override]
        self,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.Handle:
        where = copy_context() if context is None else context
        guarded = _Guarded(callback, where)
        guarded.handle = super().call_soon(guarded, *args, context=where)
        return guarded.handle

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        where = copy_context() if context is None else context
        guarded = _Guarded(callback, where)
        guarded.handle = timer = super().call_at(when, guarded, *args, context=where)
        return timer

    def call_soon_threadsafe(  # type: ignore[override]
        self,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.Handle:
        from tests.support.world.threads import running_job

        job = running_job()
        if job is None:
            return self.call_soon(callback, *args, context=context)
        # What a thread says is heard when its work is over.
        where = copy_context() if context is None else context
        job.received.append((callback, args, where))
        return asyncio.Handle(callback, args, self, where)

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, function: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        from tests.support.world.threads import VirtualExecutor

        if executor is None:
            process = PROCESS.get()
            assert process is not None, "a thread outside of every process"
            executor = process.own.setdefault("default pool", VirtualExecutor())
        return asyncio.wrap_future(executor.submit(function, *args), loop=self)

    def spawn(
        self, process: Process, work: Coroutine[Any, Any, None]
    ) -> asyncio.Task[None]:
        """Start a process's main task."""
        where = copy_context()
        where.run(PROCESS.set, process)
        return self.create_task(work, context=where)


class _Guarded:
    """A callback of a process: not of a dead one, and of a stopped one later.

    What was cancelled while it waited does not happen, as in a loop that was stopped
    between two timers that are due.
    """

    __slots__ = ("_callback", "handle", "where")

    def __init__(self, callback: Callable[..., object], where: Context) -> None:
        self._callback, self.where = callback, where
        self.handle: asyncio.Handle | None = None

    def __call__(self, *args: Any) -> None:
        process = self.where.get(PROCESS)
        if process is not None and process.stopped:
            process.later(self, args)
            return
        cancelled = self.handle is not None and self.handle.cancelled()
        if not cancelled and (process is None or process.alive):
            self._callback(*args)


def _adopted(
    loop: asyncio.AbstractEventLoop,
    work: Coroutine[Any, Any, Any],
    context: Context | None = None,
) -> asyncio.Task[Any]:
    task = asyncio.Task(work, loop=loop, context=context)
    process = PROCESS.get() if context is None else context.get(PROCESS)
    if process is not None:
        process.adopt(task)
    return task
