"""Rewards of a function, of a model, of a table."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.clients.rewards.test_source import ask
from wallflower.clients.rewards.functions import find_function
from wallflower.clients.rewards.local import (
    CallableRewards,
    SyntheticRewards,
    TableRewards,
    reward_source,
)
from wallflower.protocol.errors import ConfigError
from wallflower.protocol.files.sections import RewardSettings
from wallflower.protocol.rewards.models import synthetic_rewards


def blocking(arm: str, user: str) -> float:
    if user == "bad":
        raise RuntimeError("secret")
    return 0.25 if arm == "a" else 0.75


async def broken(arm: str, user: str) -> float:
    raise RuntimeError("secret")


async def test_a_plain_function_is_called_for_every_user() -> None:
    function = find_function("tests.clients.rewards.test_local_sources:blocking")
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
    assert pulled.reasons == {"reward-not-a-number": 1, "user-unknown": 1}
    assert pulled.clipped == 1


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
