from __future__ import annotations

import asyncio
import logging
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import aclosing
from pathlib import Path

import numpy as np
import pytest

from tests.support.virtual_time import run_virtually
from wallflower.clients.rewards import local as reward_sources
from wallflower.clients.rewards.functions import find_function
from wallflower.clients.rewards.local import (
    CallableRewards,
    SyntheticRewards,
    TableRewards,
    reward_source,
)
from wallflower.clients.rewards.source import (
    Patience,
    Pull,
    Pulled,
    Rewards,
    pull_rewards,
)
from wallflower.clients.rewards.threads import RewardThreads
from wallflower.protocol.errors import ConfigError
from wallflower.protocol.files.sections import RewardSettings
from wallflower.protocol.rewards.models import synthetic_rewards

ROOT = Path(__file__).parents[3]


def pull(*users: str, arm: int = 0, name: str = "a") -> Pull:
    return Pull("run", "cohort", 1, arm, name, "node", users)


async def ask(source: Rewards, *users: str, timeout_s: float = 60) -> Pulled:
    try:
        return await pull_rewards(source, pull(*users), Patience(timeout_s))
    finally:
        await source.close()


class Given:
    """A source that gives what it was given."""

    def __init__(self, *values: object) -> None:
        self.values = values

    async def pull(self, pull: Pull) -> Sequence[object]:
        return self.values

    async def close(self) -> None:
        return


async def test_a_bad_reward_costs_only_its_user_and_is_counted_by_reason() -> None:
    pulled = await ask(
        Given(0.5, 1.5, math.nan, "0.7", None, -0.1, 1, 10**400, ValueError("0.42")),
        *"abcdefghi",
    )
    assert pulled.values[[0, 6]].tolist() == [0.5, 1.0]
    assert np.isnan(pulled.values[[1, 2, 3, 4, 5, 7, 8]]).all()
    assert pulled.reasons == {
        "reward-out-of-range": 3,
        "reward-not-a-number": 3,
        "reward-source-failed": 1,
    }


async def test_values_never_reach_a_repr_or_a_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    pulled = await ask(Given(0.123456, 7.654321), "a", "b")
    assert "123456" not in repr(pulled) + caplog.text
    assert "654321" not in repr(pulled) + caplog.text


async def test_arrays_are_screened_like_single_values() -> None:
    class Array:
        async def pull(
            self, pull: Pull
        ) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
            return np.array([0.5, 2.0, np.nan, np.inf])

        async def close(self) -> None:
            return

    pulled = await ask(Array(), *"abcd")
    assert np.isnan(pulled.values).tolist() == [False, True, True, True]
    assert pulled.reasons == {"reward-out-of-range": 2, "reward-not-a-number": 1}


async def test_a_source_that_fails_or_answers_too_few_loses_everyone() -> None:
    class Broken:
        async def pull(self, pull: Pull) -> Sequence[object]:
            raise RuntimeError("the reward was 0.9")

        async def close(self) -> None:
            return

    assert (await ask(Broken(), "a", "b")).reasons == {"reward-source-failed": 2}
    assert (await ask(Given(0.5), "a", "b")).reasons == {"reward-source-failed": 2}


async def test_a_late_source_loses_its_users_at_the_deadline() -> None:
    async def never(arm: str, user: str) -> float:
        await asyncio.Event().wait()
        return 1.0

    pulled = await ask(CallableRewards(never), "a", timeout_s=0.05)
    assert pulled.reasons == {"reward-late": 1}


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
async def test_one_late_user_costs_only_herself(
    function: Callable[[str, str], object],
) -> None:
    pulled = await ask(CallableRewards(function), "a", "stuck", "b", timeout_s=1)
    assert pulled.values[[0, 2]].tolist() == [0.5, 0.5]
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


async def test_a_function_that_wants_to_exit_costs_one_user() -> None:
    def leaving(arm: str, user: str) -> float:
        raise SystemExit(3)

    pulled = await ask(CallableRewards(leaving), "a")
    assert pulled.reasons == {"reward-source-failed": 1}


def test_held_answers_leave_at_the_deadline_however_soon_rewards_are_known() -> None:
    async def held(patience: Patience) -> float:
        loop = asyncio.get_running_loop()
        before = loop.time()
        await pull_rewards(Given(1.0), pull("a"), patience)
        return loop.time() - before

    assert run_virtually(held(Patience(600, hold=True))) == 600
    assert run_virtually(held(Patience(600))) == 0


@pytest.mark.parametrize(
    ("own", "told", "waits"), [(None, 5, 5), (3, 5, 3), (9, 5, 5), (3, 0, 3)]
)
def test_a_node_waits_no_longer_than_the_server_and_itself_say(
    own: float | None, told: float, waits: float
) -> None:
    assert Patience(own).within(told).timeout_s == waits


def blocking(arm: str, user: str) -> float:
    if user == "bad":
        raise RuntimeError("secret")
    return 0.25 if arm == "a" else 0.75


async def broken(arm: str, user: str) -> float:
    raise RuntimeError("secret")


async def test_a_plain_function_is_called_for_every_user() -> None:
    function = find_function("tests.clients.rewards.test_source:blocking")
    source = CallableRewards(function)
    pulled = await ask(source, "x", "bad", "y")
    assert pulled.values[[0, 2]].tolist() == [0.25, 0.25]
    assert pulled.reasons == {"reward-source-failed": 1}


@pytest.mark.parametrize(
    ("name", "message"),
    [("no_such_module:f", "cannot import"), ("math:nope", 'no function "nope"')],
)
def test_a_function_that_is_not_there_is_named(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        find_function(name)


async def test_synthetic_rewards_follow_from_seed_and_user_alone() -> None:
    model = synthetic_rewards("gaussian", (0.2, 0.7), 0.1)
    one = await ask(SyntheticRewards(model, seed=7), "a", "b", "c")
    two = await ask(SyntheticRewards(model, seed=7), "c", "a")
    assert two.values.tolist() == [one.values[2], one.values[0]]
    other = await ask(SyntheticRewards(model, seed=8), "a")
    assert other.values[0] != one.values[0]


@pytest.fixture(params=["csv", "parquet"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / f"rewards-node.{request.param}"
    if request.param == "csv":
        path.write_text("user,a,b\nu1,0.5,1\nu2,,0\nu3,7,0\n")
    else:
        import pyarrow as pa
        import pyarrow.parquet as pq

        columns = {
            "user": ["u1", "u2", "u3"],
            "a": [0.5, None, 7.0],
            "b": [1.0, 0.0, 0.0],
        }
        pq.write_table(pa.table(columns), path)
    return path


async def test_a_table_is_replayed_by_user_and_arm(table: Path) -> None:
    settings = RewardSettings(
        source="table", table=table.with_name(table.name.replace("node", "{node}"))
    )
    source = reward_source(settings, "node", ("a", "b"))
    assert isinstance(source, TableRewards)
    assert source.users == ("u1", "u2", "u3")
    assert "0.5" not in repr(source)
    pulled = await ask(source, "u1", "u2", "u3", "u4")
    assert pulled.values[0] == 0.5
    assert pulled.reasons == {
        "reward-not-a-number": 1,
        "reward-out-of-range": 1,
        "user-unknown": 1,
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("user,a\nu1,1\n", 'no column "b"'),
        ("name,a,b\nu1,1,1\n", 'no column "user"'),
        ("user,a,b\nu1,1,1\nu1,1,1\n", "t.csv:3: its user stands in a row above"),
        ("user,a,b\nu1,1,1\n,1,1\n", "t.csv:3: no user"),
        ("user,a,b\n", "holds no users"),
    ],
)
def test_a_broken_table_is_refused_in_one_line(
    tmp_path: Path, text: str, message: str
) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        TableRewards(path, ("a", "b"))
    with pytest.raises(ConfigError, match="no such file"):
        TableRewards(tmp_path / "none.csv", ("a", "b"))
    with pytest.raises(ConfigError, match=r"is not a \.csv"):
        TableRewards(Path(__file__), ("a", "b"))
