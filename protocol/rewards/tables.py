"""Read logged rewards (columns ``arm`` and ``reward``) from CSV or Parquet.

A mistake is reported with its line (CSV) or row (Parquet). The offending value is
never repeated: it may be somebody's reward.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from wallflower.protocol.errors import ConfigError, not_text, optional_module
from wallflower.protocol.rewards.models import Doubles, ReplayRewards
from wallflower.protocol.rewards.reward_range import DEFAULT_RANGE, RewardRange

_SUFFIXES = (".csv", ".parquet")


@dataclass(frozen=True, slots=True, repr=False)
class RewardTable:
    """Logged rewards, grouped by arm in order of first appearance."""

    arms: tuple[str, ...]
    rewards: tuple[Doubles, ...]

    def __repr__(self) -> str:
        """Hide the rewards."""
        rows = sum(values.size for values in self.rewards)
        return f"RewardTable(arms={self.arms!r}, rows={rows})"

    def model(self, copies: int = 1) -> ReplayRewards:
        """Return the reward model that replays this table, once per instance."""
        return ReplayRewards(self.rewards, copies)


def looks_like_table(text: str) -> bool:
    """Return whether a ``--rewards`` value names a file rather than a model."""
    return "/" in text or "." in text


def read_reward_table(path: Path, measured: RewardRange = DEFAULT_RANGE) -> RewardTable:
    """Read a log with the columns arm and reward; errors name the file and line.

    Rewards are in the unit of the range; the table holds them as parts of it.
    """
    groups: dict[str, list[float]] = {}
    for where, (arm, reward) in table_rows(path, ("arm", "reward")):
        name = "" if arm is None else str(arm).strip()
        if not name:
            raise ConfigError(where, "the arm is missing")
        groups.setdefault(name, []).append(_reward(where, reward, measured))
    if not groups:
        raise ConfigError(str(path), "holds no rewards")
    return _table(groups)


def dealt_out(path: Path, node_column: str, count: int) -> tuple[int, ...]:
    """Return for every row of a table the number of the node on which its user lives.

    By the column that says so, nodes in the order of their names; else in turn.
    """
    if not node_column:
        rows = sum(1 for _ in table_rows(path, ()))
        return tuple(row % count for row in range(rows))
    names = []
    for where, (name,) in table_rows(path, (node_column,)):
        names.append("" if name is None else str(name).strip())
        if not names[-1]:
            raise ConfigError(where, f'"{node_column}" is missing')
    numbers = {name: number for number, name in enumerate(sorted(set(names)))}
    return tuple(numbers[name] for name in names)


def _table(groups: dict[str, list[float]]) -> RewardTable:
    return RewardTable(
        tuple(groups), tuple(np.array(values) for values in groups.values())
    )


def table_rows(
    path: Path, columns: Sequence[str]
) -> Iterator[tuple[str, list[object]]]:
    """Return every row's place, for messages, and its cells in the named columns."""
    if path.suffix.lower() not in _SUFFIXES:
        raise ConfigError(str(path), "is not a .csv or .parquet file")
    if not path.is_file():
        raise ConfigError(str(path), "no such file")
    read = _csv_rows if path.suffix.lower() == ".csv" else _parquet_rows
    return read(path, columns)


def _check_header(where: str, header: Sequence[str], columns: Sequence[str]) -> None:
    for needed in columns:
        if needed not in header:
            there = f"it has: {', '.join(header)}" if header else "it has none"
            raise ConfigError(where, f'no column "{needed}"; {there}')
        if list(header).count(needed) > 1:
            raise ConfigError(where, f'column "{needed}" is there more than once')


def _check_separator(where: str, header: Sequence[str]) -> None:
    """Refuse what spreadsheets of some countries write; it would be one column."""
    for name, separator in (("semicolons", ";"), ("tabs", "\t")):
        if len(header) == 1 and separator in header[0]:
            raise ConfigError(
                where,
                f"fields are separated by {name}; commas and decimal points are needed",
            )


def _csv_rows(path: Path, columns: Sequence[str]) -> Iterator[tuple[str, list[object]]]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, strict=True)
            header = [name.strip() for name in reader.fieldnames or ()]
            _check_separator(f"{path}:1", header)
            _check_header(f"{path}:1", header, columns)
            reader.fieldnames = header
            for record in reader:
                where = f"{path}:{reader.line_num}"
                if None in record:
                    raise ConfigError(where, "more fields than the header has")
                yield where, [record[name] for name in columns]
    except csv.Error as error:
        line = reader.reader.line_num  # the row that never ended
        raise ConfigError(f"{path}:{line}", f"bad CSV ({error})") from None
    except UnicodeDecodeError:
        raise not_text(path) from None


def _parquet_rows(
    path: Path, columns: Sequence[str]
) -> Iterator[tuple[str, list[object]]]:
    pyarrow = optional_module("pyarrow", "parquet")
    parquet = optional_module("pyarrow.parquet", "parquet")
    try:
        file = parquet.ParquetFile(path)
        _check_header(str(path), file.schema_arrow.names, columns)
        row = 0
        for batch in file.iter_batches(columns=list(columns)):
            cells = [batch.column(name).to_pylist() for name in columns]
            for place in range(batch.num_rows):  # rows count without columns too
                row += 1
                yield f"{path}, row {row}", [column[place] for column in cells]
    except (pyarrow.ArrowException, OSError):
        raise ConfigError(str(path), "is not a readable Parquet file") from None


def _reward(where: str, value: object, measured: RewardRange) -> float:
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise ConfigError(where, "the reward is not a number") from None
    if math.isnan(number):
        raise ConfigError(where, "the reward is not a number")
    if not measured.contains(number):
        low, high = measured.ends
        allowed = measured.with_unit(f"[{low}, {high}]")
        raise ConfigError(where, f"the reward is outside {allowed}")
    return measured.to_fraction(number)
