"""The one thread that has a ledger's file open, and what waits for it.

Whatever waits at the same time is done in one go and told to its event loop in one go:
thousands of nodes in a process cost two switches of thread between them, not two each.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Generic, TypeVar
from weakref import WeakSet

Work = TypeVar("Work")
Result = TypeVar("Result")


class LedgerThread(Generic[Work]):
    """Does work in the order of its coming, all that waits together.

    Parameters
    ----------
    do : Callable[[Sequence[Work]], Sequence[Any]]
        Runs in the thread; gives for each piece of work its result, or the exception
        that whoever waits for it shall get.
    """

    def __init__(self, do: Callable[[Sequence[Work]], Sequence[Any]]) -> None:
        self._do = do
        self._mutex = threading.Lock()
        self._waiting: list[tuple[Work, asyncio.Future[Any]]] = []
        self._soon: WeakSet[asyncio.AbstractEventLoop] = WeakSet()
        self._closed = False
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="ledger")

    def call(self, function: Callable[[], Result]) -> Result:
        """Run a function there and block until it is done."""
        return self._thread.submit(function).result()

    def close(self, last: Callable[[], None]) -> None:
        """Do what waits, then `last`, and end the thread."""
        with self._mutex:
            self._closed = True
        self._thread.submit(self._drain)
        ended = self._thread.submit(last)
        self._thread.shutdown()
        ended.result()

    async def done(self, work: Work) -> Any:
        """Give the result of a piece of work, or raise what came of it."""
        loop = asyncio.get_running_loop()
        waits: asyncio.Future[Any] = loop.create_future()
        with self._mutex:
            if self._closed:
                raise RuntimeError("the ledger is closed")
            self._waiting.append((work, waits))
            first = loop not in self._soon
            if first:
                self._soon.add(loop)
        if first:  # whoever else is about to ask in this turn of the loop comes along
            loop.call_soon(self._begin, loop)
        return await waits

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        with self._mutex:
            self._soon.discard(loop)
        with contextlib.suppress(RuntimeError):  # closed, and what waited is done
            self._thread.submit(self._drain)

    def _drain(self) -> None:
        with self._mutex:
            batch, self._waiting = self._waiting, []
        if not batch:
            return
        try:
            results = self._do([work for work, _ in batch])
        except Exception as error:  # nobody may wait for ever
            results = [error] * len(batch)
        by_loop: dict[
            asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Any], Any]]
        ] = {}
        for (_, waits), result in zip(batch, results, strict=True):
            by_loop.setdefault(waits.get_loop(), []).append((waits, result))
        for loop, told in by_loop.items():
            if not loop.is_closed():
                loop.call_soon_threadsafe(_tell, told)


def _tell(told: list[tuple[asyncio.Future[Any], Any]]) -> None:
    for waits, result in told:
        if waits.cancelled():
            continue  # done all the same: better a spend without an answer
        if isinstance(result, Exception):
            waits.set_exception(result)
        else:
            waits.set_result(result)
