from __future__ import annotations

import asyncio
import logging
import math
import threading
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from tests.support.virtual_time import leap, run_virtually
from wallflower.clients.rewards import local as reward_sources
from wallflower.clients.rewards.local import (
    CallableRewards,
    reward_source,
)
from wallflower.clients.rewards.source import (
    Doubles,
    Pull,
    Pulled,
    Rewards,
    RewardStream,
    pull_rewards,
)
from wallflower.clients.rewards.threads import RewardThreads
from wallflower.protocol.files.sections import RewardSettings
from wallflower.protocol.rewards.outcome_window import NO_WINDOW, OutcomeWindow
from wallflower.protocol.rewards.reward_range import RewardRange

ROOT = Path(__file__).parents[3]


def pull(*users: str, arm: int = 0, name: str = "a") -> Pull:
    return Pull("run", "cohort", 1, arm, name, "node", users)


async def ask(
    source: Rewards, *users: str, window_s: float | None = None, if_unknown: float = 0
) -> Pulled:
    try:
        window = OutcomeWindow(window_s, if_unknown)
        return await pull_rewards(source, pull(*users), window)
    finally:
        await source.close()


class LeapAfter:
    """A source after so many of whose outcomes an hour is over at once."""

    def __init__(self, source: RewardStream, heard: int) -> None:
        self._source, self._left = source, heard

    async def stream(self, pull: Pull) -> AsyncGenerator[tuple[int, object], None]:
        async with aclosing(self._source.stream(pull)) as answers:
            async for answer in answers:
                yield answer
                self._left -= 1
                if not self._left:
                    leap(3600)

    async def close(self) -> None:
        await self._source.close()


class Given:
    """A source that gives what it was given."""

    def __init__(self, *values: object) -> None:
        self.values = values

    async def pull(self, pull: Pull) -> Sequence[object]:
        return self.values

    async def close(self) -> None:
        return


async def test_a_bad_reward_counts_as_stated_and_is_counted_by_reason() -> None:
    pulled = await ask(
        Given(0.5, 1.5, math.nan, "0.7", None, -0.1, 1, 10**400, ValueError("0.42")),
        *"abcdefghi",
        if_unknown=0.25,
    )
    assert pulled.values[[0, 1, 5, 6]].tolist() == [0.5, 1.0, 0.0, 1.0]
    assert pulled.values[[2, 3, 4, 7, 8]].tolist() == [0.25] * 5
    assert pulled.reasons == {"reward-not-a-number": 4, "reward-source-failed": 1}


EUROS = RewardRange(Fraction(-50), Fraction(150), "€")


async def test_outcomes_are_mapped_by_the_range_and_clipped_to_it() -> None:
    given = (0, -50, 150.0, 50, 1e9, -51)
    one_by_one = await pull_rewards(Given(*given), pull(*"abcdef"), NO_WINDOW, EUROS)
    at_once = await pull_rewards(
        Arrays(np.array(given)), pull(*"abcdef"), NO_WINDOW, EUROS
    )
    for pulled in (one_by_one, at_once):
        assert pulled.values.tolist() == [0.25, 0.0, 1.0, 0.5, 1.0, 0.0]
        assert (pulled.clipped, pulled.reasons) == (2, {})


async def test_clipped_outcomes_are_counted_in_the_log_of_the_node(
    caplog: pytest.LogCaptureFixture,
) -> None:
    await pull_rewards(Given(7.654321, 1, -2.5), pull(*"abc"), NO_WINDOW, EUROS)
    assert not caplog.records
    await pull_rewards(Given(765.4321, 1, -52.5), pull(*"abc"), NO_WINDOW, EUROS)
    (record,) = caplog.records
    assert record.getMessage() == (
        "2 outcomes outside rewards.range, -50 to 150 €; clipped to its nearer end"
    )
    assert "765" not in caplog.text


async def test_means_of_synthetic_rewards_are_in_the_unit() -> None:
    settings = RewardSettings(
        model="gaussian",
        means=(-20, 30),
        deviation=1,
        seed=1,
        range=(EUROS.low, EUROS.high),
        unit="€",
    )
    source = reward_source(settings, "node", ("a", "b"))
    users = [f"u{number}" for number in range(400)]
    # The mean of 400 draws lies within 5 standard errors, 0.25, but once in 10⁶.
    for arm, mean in enumerate(settings.means):
        drawn = await source.pull(pull(*users, arm=arm))  # type: ignore[union-attr]
        assert abs(float(np.mean(np.array(drawn, dtype=float))) - mean) < 0.25


async def test_values_never_reach_a_repr_or_a_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    pulled = await ask(Given(0.123456, 7.654321), "a", "b")
    assert "123456" not in repr(pulled) + caplog.text
    assert "654321" not in repr(pulled) + caplog.text


class Arrays:
    """A source that gives an array."""

    def __init__(self, values: Doubles) -> None:
        self.values = values

    async def pull(self, pull: Pull) -> Doubles:
        return self.values

    async def close(self) -> None:
        return


async def test_arrays_are_screened_like_single_values() -> None:
    given = Arrays(np.array([0.5, 2.0, np.nan, np.inf]))
    pulled = await ask(given, *"abcd", if_unknown=0.25)
    assert pulled.values.tolist() == [0.5, 1.0, 0.25, 0.25]
    assert (pulled.clipped, pulled.reasons) == (1, {"reward-not-a-number": 2})


async def test_of_a_source_that_fails_or_answers_too_few_nothing_is_known() -> None:
    class Broken:
        async def pull(self, pull: Pull) -> Sequence[object]:
            raise RuntimeError("the reward was 0.9")

        async def close(self) -> None:
            return

    assert (await ask(Broken(), "a", "b")).reasons == {"reward-source-failed": 2}
    assert (await ask(Given(0.5), "a", "b")).reasons == {"reward-source-failed": 2}


def test_an_immediate_source_may_take_a_minute() -> None:
    async def never(arm: str, user: str) -> float:
        await asyncio.Event().wait()
        return 1.0

    async def timed() -> tuple[float, Pulled]:
        loop = asyncio.get_running_loop()
        pulled = await ask(CallableRewards(never), "a", if_unknown=0.5)
        return loop.time(), pulled

    seconds, pulled = run_virtually(timed())
    assert seconds == pytest.approx(60, abs=0.1)
    assert (pulled.values.tolist(), pulled.reasons) == ([0.5], {"reward-late": 1})


released = threading.Event()  # set at the end of every test


@pytest.fixture(autouse=True)
def _release() -> Iterator[None]:
    released.clear()
    yield
    released.set()


def stuck(arm: str, user: str) -> float:
    if user.startswith("stuck"):
        released.wait()
    return 0.5


async def stuck_coroutine(arm: str, user: str) -> float:
    if user.startswith("stuck"):
        await asyncio.Event().wait()
    return 0.5


@pytest.mark.parametrize("function", [stuck, stuck_coroutine])
async def test_one_late_user_is_the_only_one_not_known(
    function: Callable[[str, str], object],
) -> None:
    source = LeapAfter(CallableRewards(function), heard=2)
    pulled = await ask(source, "a", "stuck", "b", window_s=3600)
    assert pulled.values.tolist() == [0.5, 0.0, 0.5]
    assert pulled.reasons == {"reward-late": 1}


async def test_functions_that_never_return_hold_up_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reward_sources, "_PLACE_FOR_S", 0.01)
    users = [f"stuck{i}" for i in range(100)] + [f"u{i}" for i in range(300)]
    asked = pull(*users)
    values: dict[int, object] = {}
    async with aclosing(CallableRewards(stuck).stream(asked)) as answers:
        async for place, value in answers:
            values[place] = value
            if len(values) == 300:  # as many as ever will
                break
    assert set(values) == set(range(100, 400))


async def test_calls_beyond_the_threads_wait_and_are_not_begun_when_given_up() -> None:
    threads = RewardThreads(most=2)
    begun: list[str] = []
    held = [threads.call(released.wait) for _ in range(2)]
    third = threads.call(begun.append, "third")
    given_up = threads.call(begun.append, "given up")
    given_up.cancel()
    await asyncio.sleep(0)
    assert not third.done()
    released.set()
    await asyncio.gather(third, *held)
    assert begun == ["third"]


ENDING = [asyncio.CancelledError, SystemExit, KeyboardInterrupt, TimeoutError]


@pytest.mark.parametrize("ending", ENDING)
@pytest.mark.parametrize("asynchronous", [False, True])
async def test_whatever_a_function_raises_is_the_failure_of_one_outcome(
    ending: type[BaseException], asynchronous: bool
) -> None:
    def leaving(arm: str, user: str) -> float:
        if user == "bad":
            raise ending
        return 0.5

    async def awaited(arm: str, user: str) -> float:
        return leaving(arm, user)

    source = CallableRewards(awaited if asynchronous else leaving)
    pulled = await ask(source, "a", "bad", "b", if_unknown=0.25)
    assert pulled.values.tolist() == [0.5, 0.25, 0.5]
    assert pulled.reasons == {"reward-source-failed": 1}


class Raising:
    """A source that raises, at once or after its first outcome."""

    def __init__(self, ending: type[BaseException]) -> None:
        self.ending = ending

    async def pull(self, pull: Pull) -> Sequence[object]:
        raise self.ending

    async def close(self) -> None:
        return


class RaisingStream(Raising):
    async def stream(self, pull: Pull) -> AsyncGenerator[tuple[int, object], None]:
        yield 1, 0.5
        yield 7, 0.5  # nobody
        raise self.ending


@pytest.mark.parametrize("ending", ENDING)
async def test_whatever_a_source_raises_ends_its_own_work_only(
    ending: type[BaseException],
) -> None:
    pulled = await ask(Raising(ending), "a", "b")
    assert (pulled.values.tolist(), pulled.reasons) == (
        [0.0, 0.0],
        {"reward-source-failed": 2},
    )
    pulled = await ask(RaisingStream(ending), "a", "b")
    assert pulled.values.tolist() == [0.0, 0.5]
    assert pulled.reasons == {"reward-source-failed": 1}


def test_a_source_that_is_not_to_be_cancelled_ends_no_later_than_the_window() -> None:
    class Stubborn(Given):
        async def pull(self, pull: Pull) -> Sequence[object]:
            try:
                await asyncio.sleep(500)
            except asyncio.CancelledError:
                await asyncio.sleep(500)
            return self.values

    async def timed() -> tuple[float, Pulled]:
        loop = asyncio.get_running_loop()
        before = loop.time()
        pulled = await ask(Stubborn(1.0), "a", window_s=100)
        seconds = loop.time() - before
        await asyncio.sleep(500)  # it comes to its end, unheard
        return seconds, pulled

    seconds, pulled = run_virtually(timed())
    assert (seconds, pulled.values.tolist()) == (100, [0.0])


async def test_a_functions_failure_is_logged_once_with_class_file_and_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def failing(arm: str, user: str) -> float:
        raise KeyError(f"{user} had 0.987654")

    line = failing.__code__.co_firstlineno + 1
    await ask(CallableRewards(failing), "a", "b")
    (record,) = [r for r in caplog.records if r.levelno == logging.WARNING]
    assert record.getMessage() == (
        f"reward function failing: KeyError in {Path(__file__).name}:{line}; "
        "counted as rewards.if-unknown"
    )
    assert "987654" not in caplog.text


async def broken_at_once(arm: str, user: str) -> float:
    raise RuntimeError("secret")


async def never(arm: str, user: str) -> float:
    await asyncio.Event().wait()
    return 1.0


async def at_once(arm: str, user: str) -> float:
    return 1.0


async def midway(arm: str, user: str) -> float:
    await asyncio.sleep(300)
    return 1.0


@pytest.mark.parametrize("function", [never, at_once, midway, broken_at_once])
def test_an_answer_leaves_at_the_end_of_the_window_whatever_is_known(
    function: Callable[[str, str], object],
) -> None:
    async def timed(window_s: float | None) -> float:
        loop = asyncio.get_running_loop()
        before = loop.time()
        await ask(CallableRewards(function), "a", window_s=window_s)
        return loop.time() - before

    assert run_virtually(timed(600)) == 600
    at_last = run_virtually(timed(None))
    assert at_last == 0 if function in (at_once, broken_at_once) else at_last <= 60
