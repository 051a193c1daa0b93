"""Run a coroutine to its end from plain code, in a notebook's cell too.

A cell runs inside its kernel's event loop, where `asyncio.run` refuses to start. There
the coroutine gets a thread with a loop of its own, and the cell waits.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Generic, TypeVar

Result = TypeVar("Result")


def run_to_end(
    coroutine: Coroutine[Any, Any, Result],
    on_interrupt: Callable[[], None] | None = None,
) -> Result:
    """Run a coroutine and return its result, whether or not a loop runs here.

    Parameters
    ----------
    coroutine : Coroutine
        The work.
    on_interrupt : Callable, optional
        Called in the loop of the coroutine when somebody interrupts a notebook's cell;
        the second time, and by default, the work is cancelled. Outside of a loop,
        signals are the coroutine's own to handle.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    return _LoopBeside(coroutine).wait(on_interrupt)


class _LoopBeside(Generic[Result]):
    """A coroutine in a thread of its own, with a loop of its own."""

    def __init__(self, coroutine: Coroutine[Any, Any, Result]) -> None:
        self._coroutine = coroutine
        self._ready = threading.Event()
        self._ended = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[Result] | None = None
        self._result: list[Result] = []
        self._error: BaseException | None = None
        context = contextvars.copy_context()
        self._thread = threading.Thread(
            target=context.run, args=(self._run,), name="wallflower", daemon=True
        )

    def wait(self, on_interrupt: Callable[[], None] | None) -> Result:
        """Start it; return what it returns and raise what it raises."""
        handlers = [self._cancel, on_interrupt or self._cancel]
        # Not `Thread.join`: interrupted, Python 3.11 takes a thread for ended.
        wait_for: Callable[[], object] = self._thread.start
        while True:
            try:
                wait_for()
                if wait_for == self._ended.wait:
                    break
            except KeyboardInterrupt:
                self._call(handlers.pop() if len(handlers) > 1 else handlers[0])
            wait_for = self._ended.wait
        if self._error is not None:
            raise self._error
        return self._result[0]

    def _run(self) -> None:
        try:
            self._result.append(asyncio.run(self._main()))
        except BaseException as error:  # raised again by `wait`
            self._error = error
        finally:
            self._ready.set()
            self._ended.set()

    async def _main(self) -> Result:
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.create_task(self._coroutine)
        self._ready.set()
        return await self._task

    def _call(self, handler: Callable[[], None]) -> None:
        self._ready.wait()
        if self._loop is not None:
            with suppress(RuntimeError):  # it ended meanwhile
                self._loop.call_soon_threadsafe(handler)

    def _cancel(self) -> None:
        assert self._task is not None
        self._task.cancel()
