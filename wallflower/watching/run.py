"""One run that is watched: its page in parts, each kept up with record and events.

What a run does now and where its arms stand is drawn from the events at once. All else
is drawn from the record, which is verified first, off the loop; how often depends on
what that costs, so that watching never takes more than a part of a core.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup

from wallflower.marks import mark_of
from wallflower.protocol.errors import WallflowerError, command_on
from wallflower.protocol.numbers import counted
from wallflower.results import drawing, page
from wallflower.results.history import ArmRow, arm_rows
from wallflower.results.live import OpenCohort, UnderWay
from wallflower.results.result import ENDINGS, RunResult
from wallflower.strategy.config import ExperimentConfig
from wallflower.strategy.store import event_log, events
from wallflower.strategy.store.journal import Journal
from wallflower.strategy.store.run_store import is_held, requests_of

PARTS = ("banner", "verdict", "differences", "arms", "promise", "health", "check")
_LOOK_S = 0.1  # how long an event waits at most until it is seen
_PULSE_S = 0.5
_IDLE_SHARE = 4  # after a second of drawing at least four of rest, rounds excepted
_DECISIVE = (events.RunStarted, events.RoundFinished, events.ArmRetired)
_MOST_COHORTS = 60
_UNSOUND = " Its record does not hold, so it cannot go on as it is."


class WatchedRun:
    """Keeps the parts of one run's page up to date while `keep` runs.

    `number` is its place among the runs that are watched, from 1. `changed` is called
    whenever a part is another than before.
    """

    def __init__(
        self, number: int, directory: Path, changed: Callable[[], None]
    ) -> None:
        self.number = number
        self.parts: dict[str, str] = {}
        self.card = ""
        self._directory = directory
        self._changed = changed
        with Journal.read(directory) as journal:
            self._config: ExperimentConfig = journal.config
        self._events = UnderWay()
        self._offset = 0
        self._served = self._pausing = False
        self._seen: float | None = None
        self._rows: tuple[ArmRow, ...] = ()
        self._shown: Mapping[str, Any] = {}
        self._holds = False
        self._fresh, self._stale, self._urgent = (asyncio.Event() for _ in range(3))

    @property
    def address(self) -> str:
        """Its page."""
        return f"/runs/{self.number}/"

    async def begin(self) -> None:
        """Draw everything once, so that whoever asks next gets a whole page."""
        past, self._offset = event_log.so_far(self._directory)
        for event in past:
            self._events.take(event)
        self._look()
        await self._read_record()
        self._draw_now()

    async def keep(self, over: asyncio.Event) -> None:
        """Follow the run until `over` is set."""
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(self._follow(over)),
                group.create_task(self._redraw()),
                group.create_task(self._verify()),
                group.create_task(self._pulse()),
            ]
            await over.wait()
            await tasks[0]
            for task in tasks[1:]:
                task.cancel()
        self._look()
        await self._read_record()
        self._draw_now()

    async def _follow(self, over: asyncio.Event) -> None:
        following = event_log.follow(
            self._directory, over, offset=self._offset, longest_pause_s=_LOOK_S
        )
        async for event in following:
            self._events.take(event)
            self._fresh.set()
            if not isinstance(event, events.CohortProgress):
                self._stale.set()
            if isinstance(event, _DECISIVE):
                self._urgent.set()

    async def _redraw(self) -> None:
        while True:
            await self._fresh.wait()
            self._fresh.clear()
            self._seen = time.time()
            self._draw_now()
            await asyncio.sleep(_LOOK_S)  # many events, one drawing

    async def _verify(self) -> None:
        while True:
            await self._stale.wait()
            self._stale.clear()
            self._urgent.clear()
            started = time.monotonic()
            await self._read_record()
            self._draw_now()
            rest_s = _IDLE_SHARE * (time.monotonic() - started)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(rest_s):
                    await self._urgent.wait()

    async def _pulse(self) -> None:
        while True:
            await asyncio.sleep(_PULSE_S)
            if self._look():
                self._fresh.set()
                self._stale.set()

    def _look(self) -> bool:
        """Check whether a server is there and what it was asked; tell what changed."""
        before = self._served, self._pausing
        with contextlib.suppress(OSError):
            self._served = is_held(self._directory)
        self._pausing = requests_of(self._directory).is_pause_requested()
        self._seen = self._seen or event_log.written_at(self._directory)
        return before != (self._served, self._pausing)

    async def _read_record(self) -> None:
        try:
            shown = await asyncio.to_thread(_content, self._directory)
        except (WallflowerError, OSError) as error:
            self._holds = False
            self._show({"banner": page.fragment("unreadable.html", {"error": error})})
            return
        self._shown, self._rows = shown, shown["history"].arms
        self._holds = bool(shown["holds"])
        self._show(
            {
                "title": f"{self._config.experiment.name}: {shown['verdict'].headline}",
                **await asyncio.to_thread(_fragments, shown),
            }
        )

    def _draw_now(self) -> None:
        state = self._state()
        rows = arm_rows(
            sorted(self._events.rounds.items()), self._config.experiment.arms
        )
        newer = rows and (not self._rows or rows[-1].round > self._rows[-1].round)
        if newer and self._shown:
            names, measured = self._config.experiment.arms, self._config.reward_range
            arms = page.arms_of(rows, names, None, measured)
            shown = {**self._shown, "arms": arms}
            self._show({"arms": page.fragment("arms.html", shown)})
        self._show({"now": page.fragment("now.html", {"state": state})})
        verdict = self._shown.get("verdict")
        self.card = page.fragment(
            "card.html",
            {
                "name": self._config.experiment.name,
                "address": self.address,
                "headline": "No round is finished yet."
                if verdict is None
                else verdict.headline,
                "tone": "bad" if verdict and verdict.tone == "bad" else state.tone,
                "label": state.label,
                "state": state,
            },
        )
        self._changed()

    def _state(self) -> _State:
        """Say what the run does; the record knows its end if its events are gone.

        Of a run whose record does not hold it is not said how to go on: that is
        refused.
        """
        now = self._events
        result: RunResult | None = self._shown.get("result")
        finished = now.finished or (result.finished if result is not None else None)
        label, tone, sentence = self._words(finished)
        stopped = finished is None and not self._served
        if stopped:
            sentence += " It goes on where it was by:" if self._holds else _UNSOUND
        people, askable = now.users(), ""
        if result is not None and result.askable.people:
            askable = result.askable.describe()
        # While a server works the events are ahead of the record; else they may lack
        # some.
        if result is not None and not (self._served and now.taken):
            people = (
                f"invited {result.invited:,}, answered {result.answered:,}, "
                f"lost {sum(result.lost.values()):,}"
            )
        goes_on = f"{command_on('resume', self._directory)}"
        under_way = () if stopped or finished else now.cohorts.values()
        return _State(
            label=label,
            tone=tone,
            sentence=sentence,
            people=f"People {people}",
            askable=askable,
            command=goes_on if stopped and self._holds else "",
            cohorts=tuple(map(self._line, list(under_way)[:_MOST_COHORTS])),
            taken=now.taken,
            seen=self._seen,
        )

    def _words(self, finished: str | None) -> tuple[str, str, str]:
        """Return label, tone and sentence."""
        now = self._events
        if finished is not None:
            why = ENDINGS.get(finished)
            return "over", "good", f"The run is over: {why or finished}."
        if not self._served:
            sentence = "No server works on this run. What is finished is kept."
            return "stopped", "bad", sentence
        if now.waiting is not None:
            wait = now.waiting
            return (
                "waits",
                "open",
                f"Waiting for nodes: {wait.present} of {wait.known} are there"
                f"{wait.why and f' ({wait.why})'}, with {wait.available:,} people for "
                f"{wait.wanted:,} wanted; the run stops after {wait.patience_s:g} s.",
            )
        stops = " It stops after this round, as it was asked." if self._pausing else ""
        if not now.users_of_round:
            between = (
                f"Round {now.round} is finished." if now.round else "Nodes come in."
            )
            return "under way", "open", f"{between}{stops}"
        about = f" about {counted(len(now.arms_of_round), 'arm')}"
        estimate = now.estimate()
        return (
            "under way",
            "open",
            f"Round {now.round}: {now.users_of_round:,} people are asked{about}"
            f"{'; ' + estimate if estimate else ''}.{stops}",
        )

    def _line(self, cohort: OpenCohort) -> _CohortLine:
        stage = f"{cohort.stage}: " if cohort.stage else ""
        unit = "seat" if self._events.arriving else "node"
        words = f"{stage}{cohort.heard} of {counted(cohort.nodes, unit)} heard"
        return _CohortLine(
            self._config.experiment.arms[cohort.arm],
            drawing.legend(mark_of(cohort.arm)),
            cohort.nodes if cohort.ended else cohort.heard,
            cohort.nodes,
            cohort.ended or words,
        )

    def _show(self, parts: Mapping[str, str]) -> None:
        if any(self.parts.get(name) != html for name, html in parts.items()):
            self.parts.update(parts)
            self._changed()


def _content(directory: Path) -> dict[str, Any]:
    with Journal.read(directory) as journal:
        return page.content(journal)


def _fragments(shown: Mapping[str, Any]) -> dict[str, str]:
    return {name: page.fragment(f"{name}.html", shown) for name in PARTS}


@dataclass(frozen=True, slots=True)
class _CohortLine:
    """One cohort of the round under way, as it is shown."""

    name: str
    mark: Markup
    heard: int
    nodes: int
    words: str


@dataclass(frozen=True, slots=True)
class _State:
    """What a run is doing now.

    Attributes
    ----------
    askable : how many people can still be asked, once nodes have said so.
    command : what to type to go on, where that is needed.
    taken : events seen so far.
    seen : Unix seconds of the last sign of life, if there was one.
    """

    label: str
    tone: str  # good, open or bad
    sentence: str
    people: str
    askable: str
    command: str
    cohorts: tuple[_CohortLine, ...]
    taken: int
    seen: float | None
