"""What a run is doing now, from its events: for the terminal and for the live page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from wallflower.strategy.bandit.policy import ArmView
from wallflower.strategy.store import events


@dataclass(slots=True)
class OpenCohort:
    """One arm's cohort under way: the stage it is in, the nodes heard in it."""

    arm: int
    users: int
    nodes: int
    stage: str = ""
    heard: int = 0


@dataclass(slots=True)
class UnderWay:
    """The state that events add up to; `take` them in order.

    Attributes
    ----------
    told : how many events were taken.
    views : the arms as they stand.
    rounds : the arms after every round that was finished.
    users_of_round : asked in the round under way; 0 between rounds and after the end.
    """

    told: int = 0
    test_mode: bool = False
    round: int = 0
    users_of_round: int = 0
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
        self.told += 1
        match event:
            case events.RunStarted():
                # A server begins: what another had under way when it died is void.
                self.test_mode = event.test_mode
                self.cohorts.clear()
                self.waiting, self.users_of_round = None, 0
            case events.WaitingForNodes():
                self.waiting = event
            case events.RoundStarted():
                self.round, self.users_of_round = event.number, event.users
                self.waiting = None
                self.cohorts.clear()
            case events.CohortAsked():
                self.invited += event.users
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
                self.cohorts.pop(event.cohort_id, None)
                self.answered += event.survivors
                self._answered_here += event.survivors
                self.lost += event.lost
                self.invited -= event.returned
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

    def users(self) -> str:
        """Say how many people were asked, answered and were lost."""
        return (
            f"invited {self.invited:,}, answered {self.answered:,}, lost {self.lost:,}"
        )

    def estimate(self) -> str:
        """How long the round under way takes at the pace of those before it.

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
