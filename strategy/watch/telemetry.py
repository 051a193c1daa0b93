"""What operators see of a run while it works: log lines and metrics from its events.

Both are listeners of `strategy.store.events`. Neither repeats a bound, an estimate or a
sum: those stand in the journal.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from prometheus_client import Histogram

from wallflower.protocol.files.logs import log_context
from wallflower.protocol.rewards.seeded import TEST_MODE
from wallflower.strategy.measured import (
    counter,
    gauge,
    histogram,
    labelled,
    named,
)
from wallflower.strategy.store.events import (
    ArmRetired,
    CohortAsked,
    CohortEnded,
    CohortProgress,
    Event,
    KeyGenerated,
    Listen,
    RetirementRefused,
    RoundFinished,
    RoundStarted,
    RunStarted,
    TermsRefused,
    WaitingForNodes,
)

_log = logging.getLogger("wallflower.run")
_ROUND_BOUNDS_S = (0.1, 0.5, 1.0, 2.0, 5.0, 15.0, 60.0, 300.0, 1800.0, 7200.0)


def fan_out(*listeners: Listen) -> Listen:
    """Return one listener that tells all of them, in order."""

    async def listen(event: Event) -> None:
        for listener in listeners:
            await listener(event)

    return listen


class RunLog:
    """Write every event but progress as a structured line."""

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._batch = 0

    async def __call__(self, event: Event) -> None:
        """Log one event with the ids of its run, batch and arm."""
        if isinstance(event, RoundStarted):
            self._batch = event.batch
        named = CohortAsked | CohortEnded | ArmRetired | RetirementRefused
        arm = {"arm": event.arm} if isinstance(event, named) else {}
        with log_context(run=self._run_id, batch=self._batch, **arm):
            self._write(event)

    def _write(self, event: Event) -> None:
        match event:
            case RunStarted():
                self._write_start(event)
            case WaitingForNodes() | TermsRefused():
                self._write_nodes(event)
            case KeyGenerated():
                self._write_key(event)
            case RoundStarted():
                _log.info(
                    "batch started",
                    extra={"active": len(event.arms), "users": event.users},
                )
            case CohortAsked():
                _log.info(
                    "cohort asked",
                    extra={
                        "cohort": event.cohort_id,
                        "attempt": event.attempt,
                        "users": event.users,
                        "nodes": event.nodes,
                    },
                )
            case CohortEnded():
                self._write_end(event)
            case RoundFinished():
                _log.info(
                    "batch finished",
                    extra={
                        "invited": event.invited,
                        "answered": event.answered,
                        "lost": event.lost,
                        "active": sum(view.active for view in event.views),
                        "status": event.finished or "running",
                        "seconds": round(event.seconds, 3),
                    },
                )
            case ArmRetired() | RetirementRefused():
                self._write_retirement(event)
            case CohortProgress():
                pass

    def _write_start(self, event: RunStarted) -> None:
        if event.test_mode:
            _log.warning(TEST_MODE)
        _log.info(
            "run started", extra={"nodes": event.nodes, "users": event.population}
        )

    def _write_nodes(self, event: WaitingForNodes | TermsRefused) -> None:
        if isinstance(event, WaitingForNodes):
            extra = {"nodes": event.present, "users": event.available}
            _log.warning("waiting for nodes", extra=extra)
        else:
            refused = {"nodes": event.nodes, "reason": event.text}
            _log.warning("terms refused", extra=refused)

    def _write_retirement(self, event: ArmRetired | RetirementRefused) -> None:
        if isinstance(event, ArmRetired):
            _log.warning("arm retired by hand", extra={"reason": event.reason})
        else:
            _log.warning("arm not retired", extra={"reason": event.text})

    def _write_key(self, event: KeyGenerated) -> None:
        _log.log(
            logging.INFO if event.void is None else logging.WARNING,
            "key dealt" if event.void is None else "no key dealt",
            extra={
                "nodes": event.nodes,
                "members": event.members,
                "reason": event.void,
            },
        )

    def _write_end(self, event: CohortEnded) -> None:
        _log.log(
            logging.INFO if event.void is None else logging.WARNING,
            "cohort ended" if event.void is None else "cohort void",
            extra={
                "cohort": event.cohort_id,
                "attempt": event.attempt,
                "survivors": event.survivors,
                "lost": event.lost,
                "reason": event.void,
                "detail": dict(event.refusals),
                "losses": dict(event.losses),
                "seconds": round(event.seconds, 3),
            },
        )


@dataclass(slots=True)
class RunMetrics:
    """Counts of one run, exported through `strategy.watch.observing.Metrics`.

    `clock` gives Unix seconds; the time of the last finished batch lets an alert tell a
    stuck run from a slow one.
    """

    run_id: str = named("run_info", "The run this process works on", "run")
    clock: Callable[[], float] = time.time
    nodes: int = gauge("run_nodes", "Nodes that described their users")
    batch: int = gauge("run_batch", "Batch under way")
    active_arms: int = gauge("run_arms_active", "Arms still compared")
    cohorts_open: int = gauge("run_cohorts_open", "Cohorts under way")
    finished: bool = gauge("run_finished", "1 when the experiment is over", False)
    test_mode: bool = gauge("run_test_mode", "1 when nobody is protected", False)
    last_progress: float = gauge(
        "run_last_progress_timestamp_seconds", "Unix time of the last sign of progress"
    )
    invited: int = counter("run_users_invited", "Users asked")
    answered: int = counter("run_users_answered", "Users in a released sum")
    lost: int = counter("run_users_lost", "Users asked who are in no sum")
    losses: Counter[str] = labelled(
        "run_users_lost_by_reason", "Why they are in no sum", "reason"
    )
    cohorts: Counter[str] = labelled(
        "run_cohorts", "Cohorts ended: sum, or why void", "end"
    )
    refusals: Counter[str] = labelled(
        "run_refusals", "Refusals and losses of nodes", "code"
    )
    rounds: Histogram = histogram(
        "run_batch_seconds", "Wall time of a batch", _ROUND_BOUNDS_S
    )

    async def __call__(self, event: Event) -> None:
        """Count one event."""
        self.last_progress = self.clock()
        match event:
            case RunStarted():
                self.nodes = event.nodes
                self.test_mode = event.test_mode
                self.active_arms = len(event.arms)
            case ArmRetired():
                self.active_arms = sum(view.active for view in event.views)
                self.finished = event.finished is not None
            case (
                WaitingForNodes()
                | TermsRefused()
                | KeyGenerated()
                | RetirementRefused()
            ):
                pass
            case RoundStarted():
                self.batch = event.batch
                self.active_arms = len(event.arms)
            case CohortAsked():
                self.cohorts_open += 1
                self.invited += event.users
            case CohortEnded():
                self.cohorts_open -= 1
                self.answered += event.survivors
                self.lost += event.lost
                self.cohorts[event.void or "sum"] += 1
                self.refusals.update(dict(event.refusals))
                self.losses.update(dict(event.losses))
            case RoundFinished():
                self.rounds.observe(event.seconds)
                self.active_arms = sum(view.active for view in event.views)
                self.finished = event.finished is not None
            case CohortProgress():
                pass
