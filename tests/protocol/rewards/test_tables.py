from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from wallflower.protocol.errors import ConfigError
from wallflower.protocol.rewards.tables import dealt_out, read_reward_table


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "log.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_rewards_are_grouped_by_arm_in_order_of_appearance(tmp_path: Path) -> None:
    path = written(tmp_path, "arm,reward\nb,0.5\na,1\nb,0.25\n")
    table = read_reward_table(path)
    assert table.arms == ("b", "a")
    assert [values.tolist() for values in table.rewards] == [[0.5, 0.25], [1.0]]
    assert table.model().means == pytest.approx([0.375, 1.0])


def test_parquet_gives_the_same_table_as_csv(tmp_path: Path) -> None:
    rewards = np.linspace(0, 1, 7)
    arms = ["x", "y", "x", "y", "x", "y", "x"]
    pq.write_table(pa.table({"reward": rewards, "arm": arms}), tmp_path / "a.parquet")
    lines = "".join(f"{a},{r}\n" for a, r in zip(arms, rewards, strict=True))
    from_csv = read_reward_table(written(tmp_path, "arm,reward\n" + lines))
    from_parquet = read_reward_table(tmp_path / "a.parquet")
    assert from_parquet.arms == from_csv.arms
    for one, other in zip(from_parquet.rewards, from_csv.rewards, strict=True):
        assert one.tolist() == other.tolist()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("arm,reward\na,0.5\na,seven\n", r"log.csv:3: the reward is not a number"),
        ("arm,reward\na,1.5\n", r"log.csv:2: the reward is outside \[0, 1\]"),
        ("arm,reward\na,nan\n", r"log.csv:2: the reward is not a number"),
        ("arm,reward\na,0.5\n,0.5\n", r"log.csv:3: the arm is missing"),
        ("arm,reward\na\n", r"log.csv:2: the reward is not a number"),
        ("arm,reward\na,0.5,9\n", r"log.csv:2: more fields"),
        ('arm,reward\na,0.5\n"b,0.5\n', r"log.csv:3: bad CSV"),
        ("name,reward\na,0.5\n", r'log.csv:1: no column "arm"'),
        ("arm,reward\n", r"log.csv: holds no rewards"),
        ("", r'log.csv:1: no column "arm"'),
        ("arm,reward,reward\na,1,0\n", r'log.csv:1: column "reward" .* more than once'),
        ("arm;reward\na;0,5\n", r"log.csv:1: fields are separated by semicolons"),
        ("arm\treward\na\t0.5\n", r"log.csv:1: fields are separated by tabs"),
    ],
)
def test_a_mistake_is_named_with_its_line(
    tmp_path: Path, text: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        read_reward_table(written(tmp_path, text))


def test_a_parquet_mistake_is_named_with_its_row(tmp_path: Path) -> None:
    path = tmp_path / "log.parquet"
    pq.write_table(pa.table({"arm": ["a", "a"], "reward": [0.5, 2.0]}), path)
    with pytest.raises(ConfigError, match="row 2: the reward is outside"):
        read_reward_table(path)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("missing.csv", "no such file"),
        ("log.txt", "is not a .csv or .parquet file"),
    ],
)
def test_a_file_that_cannot_be_a_table_is_refused(
    tmp_path: Path, name: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        read_reward_table(tmp_path / name)


def test_users_of_a_parquet_table_are_dealt_to_nodes_as_those_of_a_csv(
    tmp_path: Path,
) -> None:
    csv_path, parquet_path = tmp_path / "t.csv", tmp_path / "t.parquet"
    csv_path.write_text("user,a\nu1,1\nu2,0\nu3,1\n")
    users = {"user": ["u1", "u2", "u3"], "a": [1.0, 0.0, 1.0]}
    pq.write_table(pa.table(users), parquet_path)
    assert dealt_out(parquet_path, "", 2) == dealt_out(csv_path, "", 2) == (0, 1, 0)


def test_garbage_with_a_parquet_name_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "log.parquet"
    path.write_bytes(b"not parquet at all")
    with pytest.raises(ConfigError, match="not a readable Parquet file"):
        read_reward_table(path)


def test_neither_a_table_nor_an_error_shows_a_reward(tmp_path: Path) -> None:
    path = written(tmp_path, "arm,reward\na,0.123456\na,7.654321\n")
    with pytest.raises(ConfigError) as caught:
        read_reward_table(path)
    assert "7.654321" not in str(caught.value)
    good = read_reward_table(written(tmp_path, "arm,reward\na,0.123456\n"))
    assert "0.123456" not in repr(good)


def test_the_line_is_named_in_which_a_table_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_bytes(b"arm,reward\na,0.5\n\xe4,0.5\n")
    with pytest.raises(ConfigError, match=r"log.csv:3: is not UTF-8 text"):
        read_reward_table(path)
