"""One event loop for all the messages that a process serves.

Flower calls a ClientApp as a plain function, from any thread, once per message. Ledger,
reward connections and the like belong to one loop that outlives a message, so the loop
runs in a thread of its own and each call hands its coroutine over and waits.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


class LoopThread:
    """An event loop in a daemon thread, started at the first use."""

    def __init__(self) -> None:
        self._start = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    def run(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine on the loop; its result or exception is the caller's."""
        future = asyncio.run_coroutine_threadsafe(coroutine, self._running())
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def stop(self) -> None:
        """End the loop and its thread; a later `run` starts anew."""
        with self._start:
            loop, self._loop = self._loop, None
        if loop is not None:
            loop.call_soon_threadsafe(loop.stop)

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._start:
            if self._loop is None:
                ready: threading.Event = threading.Event()
                self._loop = asyncio.new_event_loop()
                threading.Thread(
                    target=_serve, args=(self._loop, ready), daemon=True, name="node"
                ).start()
                ready.wait()
            return self._loop


def _serve(loop: asyncio.AbstractEventLoop, ready: threading.Event) -> None:
    asyncio.set_event_loop(loop)
    loop.call_soon(ready.set)
    try:
        loop.run_forever()
    finally:
        pending = asyncio.all_tasks(loop)
        for task in pending:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*pending, return_exceptions=True))
        loop.close()
