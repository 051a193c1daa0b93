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
from collections.abc import Callable
from typing import Any

from wallflower.engines.registry import Engine, EngineJob
from wallflower.protocol.errors import InputError
from wallflower.strategy.store import events, operator_requests

FINISHING = "stops after this round; Ctrl-C again stops at once and loses its users"
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


class _Told:
    """What was asked of one run so far."""

    def __init__(self, job: EngineJob, stop: Callable[[], Any], say: Say) -> None:
        self._job = job
        self._stop = stop
        self._say = say
        self._under_way = False

    async def listen(self, event: events.Event) -> None:
        """Note whether anybody could be lost now."""
        self._under_way = not isinstance(event, _IDLE)
        await self._job.listen(event)

    def after_the_round(self) -> None:
        """Stop when the round is over; at once where none is, or the second time."""
        if not self._under_way or operator_requests.is_pause_requested(
            self._job.run_dir
        ):
            self._stop()
            return
        operator_requests.request_pause(self._job.run_dir)
        self._say(FINISHING)


async def run_until_told(
    engine: Engine, job: EngineJob, say: Say, until_s: float | None
) -> None:
    """Run an engine until its end or until it is told to stop.

    Parameters
    ----------
    engine, job : Engine, EngineJob
        What to run.
    say : Callable[[str], None]
        Tells the operator what was understood.
    until_s : float, optional
        Seconds after which no further round is begun.
    """
    task = asyncio.current_task()
    assert task is not None
    told = _Told(job, task.cancel, say)
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, task.cancel)
    loop.add_signal_handler(signal.SIGINT, told.after_the_round)
    timer = None if until_s is None else loop.call_later(until_s, told.after_the_round)
    try:
        await engine(dataclasses.replace(job, listen=told.listen))
    finally:
        if timer is not None:
            timer.cancel()
        loop.remove_signal_handler(signal.SIGTERM)
        loop.remove_signal_handler(signal.SIGINT)
