"""What is seen on stderr while a run works: a live table, or plain lines.

Listens to the orchestrator's events, so every engine has the same view.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

from wallflower.protocol.rewards.seeded import TEST_MODE
from wallflower.results.view import HEADINGS, arm_cells, counted
from wallflower.strategy.bandit.policy import ArmView
from wallflower.strategy.record import blame, events
from wallflower.strategy.record.losses import in_words

if TYPE_CHECKING:
    from rich.console import Group
    from rich.live import Live

_REFRESH_PER_S = 5.0


class RunView:
    """A listener that shows events; a context manager that restores the terminal."""

    def __init__(self, arms: Sequence[str]) -> None:
        self._arms = tuple(arms)
        self._views: Sequence[ArmView] = ()
        self._round = self._users_of_round = 0
        self._invited = self._answered = self._lost = 0
        self._banner = ""
        self._answered_before, self._seconds = 0, 0.0  # in the rounds seen here
        self._answered_here = 0
        self._progress: dict[str, str] = {}
        self._live: Live | None = None

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.live import Live

            self._live = Live(
                console=Console(stderr=True, highlight=False),
                refresh_per_second=_REFRESH_PER_S,
                transient=True,
                get_renderable=self._render,
            )
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def say(self, text: str) -> None:
        """Show what was understood of the operator's wish."""
        self._progress["said"] = text
        self._line(text)

    async def listen(self, event: events.Event) -> None:
        """Take note of an event and show it."""
        match event:
            case events.RunStarted():
                self._begun(event)
            case events.WaitingForNodes():
                waiting = (
                    f"waiting for nodes: {event.present} of {event.known} are there"
                    f"{event.why and f' ({event.why})'}, "
                    f"with {event.available:,} users for {event.wanted:,} wanted; "
                    f"stops after {event.patience_s:g} s"
                )
                self._progress["waiting"] = waiting
                self._line(waiting)
            case events.TermsRefused():
                self._line(f"{event.text}; going on without them")
            case events.RoundStarted():
                self._round, self._users_of_round = event.number, event.users
                self._progress.clear()
                self._line(
                    f"round {event.number}: batch {event.batch}, "
                    f"{counted(len(event.arms), 'arm')}, {event.users:,} users asked"
                    f"{self._estimate()}"
                )
            case events.KeyDealt():
                self._dealt(event)
            case events.CohortAsked() | events.CohortProgress():
                self._under_way(event)
            case events.CohortEnded():
                self._ended(event)
            case events.RoundFinished():
                self._finished(event)
            case events.ArmRetired() | events.RetirementRefused():
                self._retired(event)

    def _begun(self, event: events.RunStarted) -> None:
        self._banner = f"{TEST_MODE}\n" if event.test_mode else ""
        done = (
            f"; {counted(event.rounds_done, 'round')} done" if event.rounds_done else ""
        )
        self._line(
            f"{event.nodes} nodes with {event.population:,} users are there; "
            f"{len(event.arms)} arms, up to {event.horizon:,} users{done}"
        )

    def _under_way(self, event: events.CohortAsked | events.CohortProgress) -> None:
        if isinstance(event, events.CohortAsked):
            self._invited += event.users
            return
        heard = f"{event.stage} {event.heard}/{event.nodes}"
        self._progress[event.cohort_id] = f"{self._arms[event.arm]}: {heard}"

    def _retired(self, event: events.ArmRetired | events.RetirementRefused) -> None:
        name = self._arms[event.arm]
        if isinstance(event, events.RetirementRefused):
            self.say(f"{name} cannot be retired: {event.text}")
            return
        self._views = event.views
        self.say(
            f"{name} is retired by hand from round {event.number} on: {event.reason}"
        )

    def _dealt(self, event: events.KeyDealt) -> None:
        if event.void is not None:
            self._line(f"  no key for sealed sums ({event.void})")
        if event.findings:
            self._line(f"    {blame.in_words(event.findings)}")

    def _ended(self, event: events.CohortEnded) -> None:
        self._progress.pop(event.cohort_id, None)
        self._answered += event.survivors
        self._answered_here += event.survivors
        self._lost += event.lost
        self._invited -= event.returned
        if event.void is not None:
            reasons = in_words(dict(event.losses))
            self._line(
                f"  {self._arms[event.arm]}: cohort void ({event.void}"
                f"{'; users lost: ' + reasons if reasons else ''})"
            )
        if event.findings:
            self._line(f"    {blame.in_words(event.findings)}")

    def _finished(self, event: events.RoundFinished) -> None:
        self._views, self._users_of_round = event.views, 0
        self._answered_before = self._answered_here
        self._seconds += event.seconds
        self._invited, self._answered = event.invited, event.answered
        self._lost = event.lost
        left = [self._arms[view.arm] for view in event.views if view.active]
        self._line(
            f"round {event.number} done in {event.seconds:.1f} s: "
            f"{counted(len(left), 'arm')} left, users {self._users()}"
            f"{'; TEST MODE, no privacy' if self._banner else ''}"
        )

    def _users(self) -> str:
        return (
            f"invited {self._invited:,}, answered {self._answered:,}, "
            f"lost {self._lost:,}"
        )

    def _estimate(self) -> str:
        """How long the round under way takes at the pace of those before it.

        How many rounds follow nobody knows: an arm may fall in any of them.
        """
        if not self._answered_before or not self._users_of_round:
            return ""
        seconds = self._seconds / self._answered_before * self._users_of_round
        return f"; about {_duration(seconds)} for this round at the pace so far"

    def _line(self, text: str) -> None:
        if self._live is None:
            sys.stderr.write(text + "\n")
            sys.stderr.flush()

    def _render(self) -> Group:
        from rich import box
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        arms = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for index, heading in enumerate(HEADINGS):
            arms.add_column(heading, justify="left" if index in (0, 4) else "right")
        for view in self._views:
            name = self._arms[view.arm]
            cells = arm_cells(name, dataclasses.asdict(view), winner=False)
            arms.add_row(*cells, style="" if view.active else "dim")
        head = (
            f"{self._banner}round {self._round}: {self._users_of_round:,} users asked; "
            f"in all {self._users()}{self._estimate()}"
        )
        under_way = "   ".join(list(self._progress.values())[:6])
        return Group(Text(head), arms, Text(under_way, style="dim"))


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
