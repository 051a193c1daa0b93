"""What is seen on stderr while a run works: a live table, or plain lines.

Both follow the orchestrator's events, so every engine has the same view. `UnderWay` is
the state that the events add up to; the live page shows it too.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Self

from wallflower.protocol.numbers import counted
from wallflower.protocol.rewards.reward_range import DEFAULT_RANGE, RewardRange
from wallflower.protocol.rewards.seeded import TEST_MODE
from wallflower.results.view import (
    arm_cells,
    bar_width,
    describe_long_unit,
    headings,
    scale_of,
)
from wallflower.strategy.bandit.policy import ArmView
from wallflower.strategy.store import events
from wallflower.strategy.store.losses import describe_findings, describe_losses

if TYPE_CHECKING:
    from rich.console import Group
    from rich.live import Live


_MOST_NAMED = 8  # cohorts in a line


@dataclass(slots=True)
class OpenCohort:
    """One arm's cohort of the round: the stage it is in, the nodes heard in it.

    `ended` says what came of it, once that is known; the round goes on with others.
    """

    arm: int
    users: int
    nodes: int
    stage: str = ""
    heard: int = 0
    ended: str = ""


@dataclass(slots=True)
class UnderWay:
    """The state that events add up to; `take` them in order.

    Attributes
    ----------
    taken : how many events were taken.
    arriving : people take seats; they count as invited when their cohort has ended.
    views : the arms as they stand.
    rounds : the arms after every round that was finished.
    users_of_round : asked in the round under way; 0 between rounds and after the end.
    arms_of_round : their arms.
    cohorts : those of the round under way, also the ones that ended.
    """

    taken: int = 0
    test_mode: bool = False
    arriving: bool = False
    round: int = 0
    users_of_round: int = 0
    arms_of_round: tuple[int, ...] = ()
    invited: int = 0
    answered: int = 0
    lost: int = 0
    finished: str | None = None
    waiting: events.WaitingForNodes | None = None
    views: Sequence[ArmView] = ()
    rounds: dict[int, Sequence[ArmView]] = field(default_factory=dict)
    cohorts: dict[str, OpenCohort] = field(default_factory=dict)
    _answered_here: int = 0
    _pace: tuple[int, float] = (0, 0.0)  # answered and seconds of the rounds seen here

    def take(self, event: events.Event) -> None:
        """Take note of an event."""
        self.taken += 1
        match event:
            case events.RunStarted():
                # A server begins: what another had under way when it died is void.
                self.test_mode, self.arriving = event.test_mode, event.arriving
                self.cohorts.clear()
                self.waiting, self.users_of_round = None, 0
            case events.WaitingForNodes():
                self.waiting = event
            case events.RoundStarted():
                self.round, self.users_of_round = event.number, event.users
                self.arms_of_round = event.arms
                self.waiting = None
                self.cohorts.clear()
            case events.CohortAsked():
                self.invited += 0 if self.arriving else event.users
                self._forget_void(event.arm)
                self.cohorts[event.cohort_id] = OpenCohort(
                    event.arm, event.users, event.nodes
                )
            case events.CohortProgress():
                cohort = self.cohorts.setdefault(
                    event.cohort_id, OpenCohort(event.arm, 0, event.nodes)
                )
                cohort.stage, cohort.heard = event.stage, event.heard
                cohort.nodes = event.nodes
            case events.CohortEnded():
                self._end_cohort(event)
            case events.RoundFinished():
                self._finish(event)
            case events.ArmRetired():
                self._retire(event)
            case (
                events.TermsRefused()
                | events.KeyGenerated()
                | events.RetirementRefused()
            ):
                pass

    def _forget_void(self, arm: int) -> None:
        """Drop an arm's cohort without a sum: the next attempt takes its place."""
        for cohort_id, cohort in list(self.cohorts.items()):
            if cohort.arm == arm and cohort.ended:
                del self.cohorts[cohort_id]

    def _end_cohort(self, event: events.CohortEnded) -> None:
        if (cohort := self.cohorts.get(event.cohort_id)) is not None:
            cohort.ended = (
                f"done: {event.survivors:,} of {cohort.users:,} answered"
                if event.void is None
                else f"no sum ({event.void.replace('-', ' ')})"
            )
        self.answered += event.survivors
        self._answered_here += event.survivors
        self.lost += event.lost
        self.invited -= event.returned
        if self.arriving:
            self.invited += event.survivors + event.lost

    def _finish(self, event: events.RoundFinished) -> None:
        self.views = self.rounds[event.number] = event.views
        self.round, self.users_of_round = event.number, 0
        self.cohorts.clear()
        self.invited, self.answered = event.invited, event.answered
        self.lost, self.finished = event.lost, event.finished
        self._pace = self._answered_here, self._pace[1] + event.seconds

    def _retire(self, event: events.ArmRetired) -> None:
        self.views, self.finished = event.views, event.finished
        if event.number - 1 in self.rounds:
            self.rounds[event.number - 1] = event.views

    def count_asked(self, users: int) -> str:
        """Say how many users a round asks, or how many seats it has."""
        if self.arriving:
            return f"{counted(users, 'seat')} opened"
        return f"{counted(users, 'user')} asked"

    def users(self) -> str:
        """Say how many people were asked, answered and were lost."""
        return (
            f"invited {self.invited:,}, answered {self.answered:,}, lost {self.lost:,}"
        )

    def waits_for(self, names: Sequence[str]) -> str:
        """Say whose answers are out; `names` are those of all arms."""
        if not self.users_of_round:
            between = f"round {self.round} is over" if self.round else "no round so far"
            return f"{between}; waiting for nodes to come in or to agree"
        heard = [
            f"{names[one.arm]} {one.stage or 'asked'} {one.heard}/{one.nodes}"
            for one in self.cohorts.values()
            if not one.ended
        ]
        more = f" and {len(heard) - _MOST_NAMED} more" * (len(heard) > _MOST_NAMED)
        return (
            f"round {self.round} goes on; nodes heard: "
            f"{', '.join(heard[:_MOST_NAMED])}{more}"
        )

    def estimate(self) -> str:
        """Return how long the round under way takes at the pace of those before it.

        How many rounds follow nobody knows: an arm may fall in any of them.
        """
        answered, seconds = self._pace
        if not answered or not self.users_of_round:
            return ""
        wanted = seconds / answered * self.users_of_round
        return f"about {_duration(wanted)} for this round at the pace so far"


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


_REFRESH_PER_S = 5.0
_SILENCE_S, _LONGEST_SILENCE_S = 15.0, 600.0


class RunView:
    """A listener that shows events; a context manager that restores the terminal."""

    def __init__(
        self, arms: Sequence[str], measured: RewardRange = DEFAULT_RANGE
    ) -> None:
        self._arms = tuple(arms)
        self._measured = measured
        self._now = UnderWay()
        self._waiting_text = ""
        self._lines = 0
        self._live: Live | None = None

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.live import Live

            console = Console(stderr=True, highlight=False)
            self._live = Live(
                console=console,
                refresh_per_second=_REFRESH_PER_S,
                transient=True,
                get_renderable=lambda: self._render(console.width),
            )
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    async def break_silence(self) -> None:
        """Say what a run waits for whenever nothing was said for long, until cancelled.

        The pauses grow, so that a window of days does not fill a log.
        """
        pause_s, lines = _SILENCE_S, self._lines
        while True:
            await asyncio.sleep(pause_s)
            if self._lines == lines:
                self._line(f"  {self._now.waits_for(self._arms)}")
                pause_s = min(2 * pause_s, _LONGEST_SILENCE_S)
            else:
                pause_s = _SILENCE_S
            lines = self._lines

    def say(self, text: str) -> None:
        """Show what was understood of the operator's request."""
        self._waiting_text = text
        self._line(text)

    async def listen(self, event: events.Event) -> None:
        """Take note of an event and show it."""
        self._now.take(event)
        match event:
            case events.RunStarted():
                self._note_begin(event)
            case events.WaitingForNodes():
                self._line(_waiting(event))
            case events.TermsRefused():
                self._line(f"{event.text}; going on without them")
            case events.RoundStarted():
                self._waiting_text = ""
                self._line(
                    f"round {event.number}: {counted(len(event.arms), 'arm')}, "
                    f"{self._now.count_asked(event.users)}"
                    f"{self._estimate()}"
                )
            case events.KeyGenerated():
                self._note_dealing(event)
            case events.CohortEnded():
                self._note_end(event)
            case events.RoundFinished():
                self._note_finish(event)
            case events.ArmRetired() | events.RetirementRefused():
                self._note_retirement(event)
            case events.CohortAsked() | events.CohortProgress():
                pass

    def _note_begin(self, event: events.RunStarted) -> None:
        done = (
            f"; {counted(event.rounds_done, 'round')} done" if event.rounds_done else ""
        )
        there = (
            f"{counted(event.nodes, 'trustee')} there, people may come"
            if event.arriving
            else f"{counted(event.nodes, 'node')} with "
            f"{counted(event.population, 'user')} there"
        )
        self._line(
            f"{there}; {counted(len(event.arms), 'arm')}, up to "
            f"{counted(event.horizon, 'user')}{done}"
        )

    def _note_retirement(
        self, event: events.ArmRetired | events.RetirementRefused
    ) -> None:
        name = self._arms[event.arm]
        if isinstance(event, events.RetirementRefused):
            self.say(f"{name} cannot be retired: {event.text}")
            return
        self.say(
            f"{name} is retired by hand from round {event.number} on: {event.reason}"
        )

    def _note_dealing(self, event: events.KeyGenerated) -> None:
        if event.void is not None:
            self._line(f"  no key for sealed sums ({event.void})")
        if event.findings:
            self._line(f"    {describe_findings(event.findings)}")

    def _note_end(self, event: events.CohortEnded) -> None:
        if event.void is not None:
            reasons = describe_losses(dict(event.losses))
            self._line(
                f"  {self._arms[event.arm]}: cohort void ({event.void}"
                f"{'; users lost: ' + reasons if reasons else ''})"
            )
        if event.findings:
            self._line(f"    {describe_findings(event.findings)}")

    def _note_finish(self, event: events.RoundFinished) -> None:
        left = [self._arms[view.arm] for view in event.views if view.active]
        self._line(
            f"round {event.number} done in {event.seconds:.1f} s: "
            f"{counted(len(left), 'arm')} left; in all: {self._now.users()}"
            f"{'; TEST MODE, no privacy' if self._now.test_mode else ''}"
        )

    def _estimate(self) -> str:
        estimate = self._now.estimate()
        return f"; {estimate}" if estimate else ""

    def _line(self, text: str) -> None:
        self._lines += 1
        if self._live is None:
            # A run does not end because its reader has gone (`2>&1 | head`).
            with suppress(OSError):
                sys.stderr.write(text + "\n")
                sys.stderr.flush()

    def _render(self, columns: int = 120) -> Group:
        from rich import box
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        arms = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        bars = bar_width(columns)
        scale = scale_of(self._now.views)
        for index, heading in enumerate(headings(bars, self._measured, scale)):
            number = 0 < index < 4
            justify: Literal["right", "left"] = "right" if number else "left"
            arms.add_column(heading, justify=justify, no_wrap=number, overflow="fold")
        now = self._now
        for view in now.views:
            name = self._arms[view.arm]
            cells = arm_cells(
                name, view, False, bars=bars, measured=self._measured, scale=scale
            )
            arms.add_row(*cells, style="" if view.active else "dim")
        banner = f"{TEST_MODE}\n" if now.test_mode else ""
        stands = f"round {now.round}: {now.count_asked(now.users_of_round)}"
        if not now.users_of_round:
            stands = f"round {now.round} is over" if now.round else "begins"
        head = f"{banner}{stands}; in all {now.users()}{self._estimate()}"
        head += describe_long_unit(self._measured)
        return Group(Text(head), arms, Text("   ".join(self._beside()), style="dim"))

    def _beside(self) -> list[str]:
        """Say what goes on: what was asked, who is waited for, cohorts under way."""
        parts = [self._waiting_text] if self._waiting_text else []
        if self._now.waiting is not None:
            parts.append(_waiting(self._now.waiting))
        parts += [
            f"{self._arms[one.arm]}: {one.stage} {one.heard}/{one.nodes}"
            for one in self._now.cohorts.values()
            if one.stage and not one.ended
        ]
        return parts[:6]


def _waiting(event: events.WaitingForNodes) -> str:
    return (
        f"waiting for nodes: {event.present} of {event.known} are there"
        f"{event.why and f' ({event.why})'}, "
        f"with {counted(event.available, 'user')} for {event.wanted:,} wanted; "
        f"stops after {event.patience_s:g} s"
    )
