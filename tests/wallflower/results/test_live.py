from __future__ import annotations

import asyncio
import dataclasses
import io

import pytest
from rich.console import Console

from tests.support.virtual_time import in_virtual_time
from wallflower.results.live import RunView
from wallflower.results.view import bar
from wallflower.strategy.bandit.policy import ArmView
from wallflower.strategy.store import events

ARMS = ("first", "second")
VIEWS = (
    ArmView(0, 100, 0.25, 0.1, 0.4, False, 1, asked=100),
    ArmView(1, 100, 0.75, 0.6, 0.9, True, None, asked=100),
)
STORY: tuple[events.Event, ...] = (
    events.RunStarted("run", ARMS, 10, 1000, 1000, 0),
    events.RoundStarted(1, 1, (0, 1), 200),
    events.CohortAsked("c0", 1, 1, 0, 1, 100, 10),
    events.CohortAsked("c1", 1, 1, 1, 1, 100, 10),
    events.CohortProgress("c0", 0, "contribute", 3, 10),
    events.CohortEnded("c0", 0, 1, 95, 5, None, (), 0.5),
    events.CohortEnded("c1", 1, 1, 0, 100, "quorum-not-met", (), 0.5, (("late", 99),)),
)
END = events.RoundFinished(1, VIEWS, 200, 95, 105, None, 1.25)


async def test_without_a_terminal_every_step_is_a_plain_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with RunView(ARMS) as view:
        for event in (*STORY, END):
            await view.listen(event)
    said = capsys.readouterr()
    assert said.out == ""
    lines = said.err.splitlines()
    assert lines[0] == "10 nodes with 1,000 users there; 2 arms, up to 1,000 users"
    assert lines[1] == "round 1: 2 arms, 200 users asked"
    assert lines[2] == "  second: cohort void (quorum-not-met; users lost: 99 late)"
    done = "round 1 done in 1.2 s: 1 arm left; in all: "
    assert lines[3] == f"{done}invited 200, answered 95, lost 105"


async def test_a_round_is_estimated_from_the_pace_of_those_before_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with RunView(ARMS) as view:
        for event in (*STORY, END, events.RoundStarted(2, 2, (0, 1), 760)):
            await view.listen(event)
    # 95 answered in 1.25 s: 760 take 10 s.
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.endswith(
        "760 users asked; about 10 s for this round at the pace so far"
    )


async def test_nothing_is_estimated_between_rounds_and_after_the_end() -> None:
    view = RunView(ARMS)
    for event in (*STORY, END):
        await view.listen(event)
    drawn = io.StringIO()
    Console(file=drawn, width=120).print(view._render())
    assert "about" not in drawn.getvalue()


async def test_between_rounds_it_says_that_the_round_is_over() -> None:
    view = RunView(ARMS)
    for event in (*STORY, END):
        await view.listen(event)
    drawn = io.StringIO()
    Console(file=drawn, width=120).print(view._render())
    assert "round 1 is over; in all invited 200" in drawn.getvalue()
    assert "0 users asked" not in drawn.getvalue()


async def test_on_a_terminal_arms_have_bars_and_cohorts_their_progress(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    view = RunView(ARMS)
    monkeypatch.setattr("sys.stderr", io.StringIO())
    await view.listen(END)
    for event in STORY[:5]:
        await view.listen(event)
    drawn = io.StringIO()
    Console(file=drawn, width=120).print(view._render())
    assert "first: contribute 3/10" in drawn.getvalue()
    assert "out in round 1" in drawn.getvalue()
    assert bar(0.6, 0.9, 0.75, 30) in drawn.getvalue()


async def test_bars_of_small_rates_fill_their_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    low = ArmView(0, 9000, 0.01, 0.005, 0.015, True, None, asked=9000)
    high = ArmView(1, 9000, 0.03, 0.025, 0.035, True, None, asked=9000)
    view = RunView(ARMS)
    monkeypatch.setattr("sys.stderr", io.StringIO())
    await view.listen(dataclasses.replace(END, views=(low, high)))
    drawn = io.StringIO()
    Console(file=drawn, width=120).print(view._render())
    assert " 0.04 " in drawn.getvalue()  # the right end of the bars
    assert bar(0.625, 0.875, 0.75, 30) in drawn.getvalue()


@pytest.mark.parametrize("width", [60, 80, 200])
async def test_the_live_view_fits_its_terminal_and_no_number_is_cut(
    width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = RunView(("a rather long name of the first arm", "second"))
    monkeypatch.setattr("sys.stderr", io.StringIO())
    waiting = events.WaitingForNodes(3, 12, 120, 30, 600.0, "3 reward-source-down")
    for event in (END, *STORY[:5], waiting):
        await view.listen(event)
    view.say("stops after this round")
    drawn = io.StringIO()
    Console(file=drawn, width=width).print(view._render(width))
    assert max(map(len, drawn.getvalue().splitlines())) <= width
    assert "…" not in drawn.getvalue()
    for number in ("0.100 – 0.400", "0.600 – 0.900", "0.250", "0.750"):
        assert number in drawn.getvalue()


async def test_one_of_a_thing_is_named_in_the_singular(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with RunView(ARMS) as view:
        await view.listen(events.RunStarted("run", ARMS, 1, 1, 1000, 1))
        await view.listen(events.RoundStarted(2, 2, (0,), 1))
    said = capsys.readouterr().err.splitlines()
    assert said == [
        "1 node with 1 user there; 2 arms, up to 1,000 users; 1 round done",
        "round 2: 1 arm, 1 user asked",
    ]


@pytest.mark.parametrize(
    ("interval", "drawn"),
    [
        ((0.0, 1.0, None), "━━━━━━━━━━"),
        ((0.0, 0.0, -0.3), "●·········"),
        ((0.9, 1.0, 1.4), "········━●"),
    ],
)
def test_a_bar_stays_within_its_width(
    interval: tuple[float, float, float | None], drawn: str
) -> None:
    assert bar(*interval, 10) == drawn


async def test_a_run_goes_on_when_the_reader_of_its_lines_has_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Gone(io.StringIO):
        tried = 0

        def write(self, text: str) -> int:
            self.tried += 1
            raise BrokenPipeError

    gone = Gone()
    monkeypatch.setattr("sys.stderr", gone)
    with RunView(ARMS) as view:
        for event in (*STORY, END):
            await view.listen(event)
    assert gone.tried > 0


@in_virtual_time
async def test_whom_a_silent_round_waits_for_is_said_again_and_again(
    capsys: pytest.CaptureFixture[str],
) -> None:
    view = RunView(ARMS)
    signs = asyncio.create_task(view.break_silence())
    await asyncio.sleep(16)
    for event in STORY[:5]:
        await view.listen(event)
    await asyncio.sleep(100)
    signs.cancel()
    await asyncio.wait([signs])
    first, *_, second, third = capsys.readouterr().err.splitlines()
    assert first == "  no round so far; waiting for nodes to come in or to agree"
    assert second == third
    assert third == (
        "  round 1 goes on; nodes heard: first contribute 3/10, second asked 0/10"
    )
