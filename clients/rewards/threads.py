"""Threads in which reward functions may block, apart from all other threads.

Nothing can end a function that never returns: it keeps its thread until the process
ends. So these threads are daemons, which hold up no exit, and no work but rewards waits
for one of them.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from wallflower.clients.rewards.source import FAILED, LostRewardError

_log = logging.getLogger(__name__)

MOST_THREADS = 1024


class RewardThreads:
    """As many daemon threads as there are calls, up to a limit; the rest wait.

    Parameters
    ----------
    most : int
        Threads at a time, those that will never return included.
    """

    def __init__(self, most: int = MOST_THREADS) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._waiting: deque[tuple[Future[object], Callable[[], object]]] = deque()
        self._running = 0
        self._warned = False

    def call(
        self, function: Callable[..., Any], *arguments: object
    ) -> asyncio.Future[object]:
        """Call a function in a thread; a failure is a `LostRewardError` as result.

        Cancelling the future keeps a call that has not begun from beginning.
        """
        future: Future[object] = Future()
        with self._lock:
            self._waiting.append((future, lambda: function(*arguments)))
            start = self._running < self._most
            if start:
                self._running += 1
            elif not self._warned:
                self._warned = True
                _log.warning(
                    "every reward thread is taken; are there functions that never "
                    "return?",
                    extra={"event": "reward-threads-exhausted", "count": self._most},
                )
        if start:
            threading.Thread(target=self._work, daemon=True, name="reward").start()
        return asyncio.wrap_future(future)

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._running -= 1
                    return
                future, function = self._waiting.popleft()
            if future.set_running_or_notify_cancel():
                future.set_result(_outcome(function))


def _outcome(function: Callable[[], object]) -> object:
    try:
        return function()
    except BaseException:
        # Its text may quote a reward: only the fact is kept. SystemExit, too, is the
        # function's own failure and not a request to end the node.
        return LostRewardError(FAILED)


REWARD_THREADS = RewardThreads()
