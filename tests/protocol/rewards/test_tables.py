from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from wallflower.protocol.errors import ConfigError
from wallflower.protocol.rewards.tables import dealt_out, table_rows


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "log.csv"
    path.write_text(text, encoding="utf-8")
    return path


def read(path: Path) -> list[tuple[str, list[object]]]:
    return list(table_rows(path, ("a", "b")))


def test_a_row_has_its_place_and_the_cells_of_the_named_columns(tmp_path: Path) -> None:
    path = written(tmp_path, "b,more,a\n0.5,x,1\n,y,0.25\n")
    assert read(path) == [(f"{path}:2", ["1", "0.5"]), (f"{path}:3", ["0.25", ""])]


def test_a_row_of_parquet_has_its_number(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"b": [0.5, None], "a": [1.0, 0.25]}), path)
    places = [f"{path}, row {number}" for number in (1, 2)]
    assert read(path) == list(zip(places, [[1.0, 0.5], [0.25, None]], strict=True))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n1,0.5,9\n", r"log.csv:2: more fields"),
        ('a,b\n1,0.5\n"1,0.5\n', r"log.csv:3: bad CSV"),
        ("name,b\n1,0.5\n", r'log.csv:1: no column "a"'),
        ("", r'log.csv:1: no column "a"'),
        ("a,b,b\n1,1,0\n", r'log.csv:1: column "b" .* more than once'),
        ("a;b\n1;0,5\n", r"log.csv:1: fields are separated by semicolons"),
        ("a\tb\n1\t0.5\n", r"log.csv:1: fields are separated by tabs"),
    ],
)
def test_a_mistake_is_named_with_its_line(
    tmp_path: Path, text: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        read(written(tmp_path, text))


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
        read(tmp_path / name)


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
        read(path)


def test_the_line_is_named_in_which_a_table_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_bytes(b"a,b\n1,0.5\n\xe4,0.5\n")
    with pytest.raises(ConfigError, match=r"log.csv:3: is not UTF-8 text"):
        read(path)


def test_a_table_that_may_not_be_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    path = written(tmp_path, "a,b\n1,0\n")
    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(ConfigError, match=r"cannot be read \(Permission denied\)"):
        read(path)
