"""An event loop whose clock jumps: hours of deadlines pass in no time.

Only for tests in which nothing outside the loop is waited for: when nothing is ready,
the clock moves to the next timer. A test that waits for something that never comes ends
with an error instead of a hang.
"""

from __future__ import annotations

import asyncio
import functools
import selectors
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar
from unittest import mock

Result = TypeVar("Result")
Given = ParamSpec("Given")


_MOST_TURNS = 100_000


class HangError(Exception):
    """Everybody waits and no timer is set: real time would pass for ever."""


class _JumpingSelector(selectors.DefaultSelector):
    now = 0.0
    latest = float("inf")
    turns = 0  # of the loop at the same instant

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise HangError("nothing is scheduled and nobody is ready")
        self.turns = self.turns + 1 if timeout <= 0 else 0
        if self.turns > _MOST_TURNS:
            raise HangError(f"turns on the spot at {self.now:.0f} s")
        self.now += max(timeout, 0.0)
        if self.now > self.latest:
            raise HangError(f"not over after {self.now:.0f} s")
        return super().select(0)


def _at_once(
    pool: ThreadPoolExecutor,
    function: Callable[Given, Result],
    /,
    *args: Given.args,
    **kwargs: Given.kwargs,
) -> Future[Result]:
    """Do what is meant for a thread at once: in virtual time it takes none."""
    future: Future[Result] = Future()
    try:
        future.set_result(function(*args, **kwargs))
    except BaseException as error:
        future.set_exception(error)
    return future


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """Time is what the timers say."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now

    async def shutdown_default_executor(self) -> None:
        """Wait for no thread: there is none, see `_at_once`.

        asyncio would end the executor in a thread of its own and, while nothing else is
        scheduled, wait for it: a hang, if that thread is late.
        """

    def end_at(self, latest: float) -> None:
        """Call it a hang when the clock passes `latest`."""
        self._jumping.latest = latest


def leap(seconds: float) -> None:
    """Let the clock of the running loop, a real one, jump: what it passes is due."""
    loop = asyncio.get_running_loop()
    before = loop.time
    loop.time = lambda: before() + seconds  # type: ignore[method-assign]


def run_virtually(work: Coroutine[Any, Any, Result]) -> Result:
    """Run to the end in virtual time; nothing may be left running."""
    with (
        mock.patch.object(ThreadPoolExecutor, "submit", _at_once),
        asyncio.Runner(loop_factory=VirtualTimeLoop) as runner,
    ):

        async def whole() -> Result:
            result = await work
            left = asyncio.all_tasks() - {asyncio.current_task()}
            assert not left, f"{len(left)} tasks left running"
            return result

        return runner.run(whole())


def in_virtual_time(
    test: Callable[Given, Coroutine[Any, Any, Result]],
) -> Callable[Given, Result]:
    """Return the test as a function that runs it in virtual time."""

    @functools.wraps(test)
    def run(*args: Given.args, **kwargs: Given.kwargs) -> Result:
        return run_virtually(test(*args, **kwargs))

    return run
