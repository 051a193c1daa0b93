"""How work is told to stop: after the step under way, or at once.

Ctrl-C once (or ``--until``, or ``wallflower pause`` from elsewhere) lets the round
under way finish, so that nobody who was asked is lost. Ctrl-C again, or SIGTERM from
systemd or Kubernetes, stops at once.
"""

from __future__ import annotations

import asyncio
import dataclasses
import datetime
import signal
import threading
from collections.abc import Callable
from typing import Any

from wallflower.engines.registry import Engine, EngineJob
from wallflower.protocol.errors import InputError
from wallflower.strategy.store import events
from wallflower.strategy.store.run_store import requests_of

FINISHING = "stops after this round; Ctrl-C again stops at once and loses its users"
FINISHING_SEATS = "stops after this round; Ctrl-C again stops at once and loses nobody"
Say = Callable[[str], None]
_IDLE = (events.WaitingForNodes, events.TermsRefused)


def seconds_until(clock: str, now: datetime.datetime) -> float:
    """Return the seconds to the next time the clock shows ``HH:MM``.

    Examples
    --------
    >>> seconds_until("06:30", datetime.datetime(2026, 1, 1, 23, 30))
    25200.0
    """
    try:
        wanted = datetime.time.fromisoformat(clock)
        if len(clock) != len("HH:MM"):
            raise ValueError
    except ValueError:
        raise InputError("until", f'"{clock}"', "a time of day, HH:MM") from None
    then = datetime.datetime.combine(now.date(), wanted, now.tzinfo)
    if then <= now:
        then += datetime.timedelta(days=1)
    return (then - now).total_seconds()


class StopRequests:
    """What was asked of one run so far: to stop after its round, or at once."""

    def __init__(self, job: EngineJob, say: Say) -> None:
        self._job = job
        self._say = say
        self._task: asyncio.Task[Any] | None = None
        self._under_way = False

    async def listen(self, event: events.Event) -> None:
        """Note whether anybody could be lost now."""
        self._under_way = not isinstance(event, _IDLE)
        await self._job.listen(event)

    def begin(self) -> None:
        """Remember the current task as the one that works on the run."""
        self._task = asyncio.current_task()

    def stop_at_once(self) -> None:
        """Cancel the run."""
        if self._task is not None:
            self._task.cancel()

    def stop_after_round(self) -> None:
        """Stop when the round is over; at once where none is, or the second time."""
        if not self._under_way or requests_of(self._job.run_dir).is_pause_requested():
            self.stop_at_once()
            return
        requests_of(self._job.run_dir).request_pause()
        arriving = self._job.config.visitors is not None
        self._say(FINISHING_SEATS if arriving else FINISHING)


async def run_until_stopped(
    engine: Engine, job: EngineJob, requests: StopRequests, until_s: float | None
) -> None:
    """Run an engine until its end or until it is told to stop.

    Parameters
    ----------
    engine, job : Engine, EngineJob
        What to run.
    requests : StopRequests
        Hears the signals, if this is the thread that gets them.
    until_s : float, optional
        Seconds after which no further round is begun.
    """
    requests.begin()
    loop = asyncio.get_running_loop()
    heard = threading.current_thread() is threading.main_thread()
    if heard:
        loop.add_signal_handler(signal.SIGTERM, requests.stop_at_once)
        loop.add_signal_handler(signal.SIGINT, requests.stop_after_round)
    timer = (
        None if until_s is None else loop.call_later(until_s, requests.stop_after_round)
    )
    try:
        await engine(dataclasses.replace(job, listen=requests.listen))
    finally:
        if timer is not None:
            timer.cancel()
        if heard:
            loop.remove_signal_handler(signal.SIGTERM)
            loop.remove_signal_handler(signal.SIGINT)
