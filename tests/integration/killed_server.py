"""The command line in a process that kills itself (SIGKILL) in a named phase.

``python -m tests.integration.killed_server PHASE MARKER ROUNDS words…`` runs
``wallflower words…`` and dies in PHASE once ROUNDS rounds were finished by this
process. The phase is written to MARKER first, so that whoever started the process knows
that the kill landed where it was meant to. Everything else is the real thing.
"""

from __future__ import annotations

import functools
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support import shown_log
from wallflower.clients.node.ledger import Ledger
from wallflower.strategy.run import cohort as cohort_runner
from wallflower.strategy.run.requests import CohortTraffic
from wallflower.strategy.store import chain, entries
from wallflower.strategy.store.event_log import EventLog
from wallflower.strategy.store.events import RoundFinished
from wallflower.strategy.store.journal import Journal

SHOWN_BEFORE_THE_KILL = 25


class Killer:
    """Dies in one phase, after so many finished rounds."""

    def __init__(self, phase: str, marker: Path, rounds: int) -> None:
        self._phase, self._marker, self._rounds = phase, marker, rounds
        self.finished = 0
        self.shown = 0

    def reached(self, phase: str) -> None:
        """Die if this is the phase."""
        if phase == self._phase and self.finished >= self._rounds:
            self._marker.write_text(phase)
            os.kill(os.getpid(), signal.SIGKILL)

    def show(self, *_: object) -> None:
        """Count somebody who was shown an arm."""
        self.shown += 1
        if self.shown >= SHOWN_BEFORE_THE_KILL:
            self.reached("arms partly shown")


def _before(owner: Any, name: str, reached: Callable[..., None]) -> None:
    inner = getattr(owner, name)

    @functools.wraps(inner)
    def wrapped(*arguments: Any, **named: Any) -> Any:
        reached(*arguments, **named)
        return inner(*arguments, **named)

    setattr(owner, name, wrapped)


def _after(owner: Any, name: str, reached: Callable[..., None]) -> None:
    inner = getattr(owner, name)

    @functools.wraps(inner)
    def wrapped(*arguments: Any, **named: Any) -> Any:
        result = inner(*arguments, **named)
        reached(*arguments, **named)
        return result

    setattr(owner, name, wrapped)


def _after_awaiting(owner: Any, name: str, reached: Callable[..., None]) -> None:
    inner = getattr(owner, name)

    @functools.wraps(inner)
    async def wrapped(*arguments: Any, **named: Any) -> Any:
        result = await inner(*arguments, **named)
        reached(*arguments, **named)
        return result

    setattr(owner, name, wrapped)


def install(killer: Killer) -> None:
    """Stand at every phase."""

    def writing(database: object, kind: str, *rest: object) -> None:
        if kind == entries.INVITED:
            killer.reached("invitations half written")
        elif kind == entries.SUMMED:
            killer.reached("round half written")

    def noting(journal: Journal, kind: str, number: int) -> None:
        phases = {entries.RESUMED: "restart noted"}
        killer.reached(phases.get(kind, ""))

    def asking(traffic: CohortTraffic, party: str, stage: str, body: bytes) -> None:
        killer.reached(f"{stage} about to be asked")

    def hearing(traffic: CohortTraffic, answer: object) -> None:
        if traffic.heard >= 3:
            killer.reached(f"{traffic.stage} partly answered")

    def telling(log: EventLog, event: object) -> None:
        if isinstance(event, RoundFinished):
            killer.finished += 1
            killer.reached("between rounds")

    _after(shown_log, "note", killer.show)
    _before(chain, "append", writing)
    _after(Journal, "invite", lambda *_: killer.reached("invitations written"))
    _after(CohortTraffic, "wrap", asking)
    _after(CohortTraffic, "unwrap", hearing)
    _after_awaiting(Ledger, "spend", lambda *_: killer.reached("spend written"))
    _after(cohort_runner, "released_sum", lambda *_: killer.reached("sum known"))
    _after(Journal, "finish_round", lambda *_: killer.reached("round written"))
    _after_awaiting(EventLog, "listen", telling)
    _after(Journal, "void_open", lambda *_: killer.reached("cohorts given up"))
    _after(Journal, "note", noting)


if __name__ == "__main__":
    phase, marker, rounds, *words = sys.argv[1:]
    install(Killer(phase, Path(marker), int(rounds)))
    from wallflower.cli import main

    sys.argv = ["wallflower", *words]
    main()
