"""Read logged rewards (columns ``arm`` and ``reward``) from CSV or Parquet.

A mistake is reported with its line (CSV) or row (Parquet). The offending value is
never repeated: it may be somebody's reward.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from protocol.errors import ConfigError
from protocol.rewards import Doubles, ReplayRewards

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

    def model(self) -> ReplayRewards:
        """Give the reward model that replays this table."""
        return ReplayRewards(self.rewards)


def looks_like_table(text: str) -> bool:
    """Tell whether a ``--rewards`` value names a file rather than a model."""
    return "/" in text or "." in text


def read_reward_table(path: Path) -> RewardTable:
    """Read a table of logged rewards; errors name the file and the line."""
    if path.suffix.lower() not in _SUFFIXES:
        raise ConfigError(str(path), "is not a .csv or .parquet file")
    if not path.is_file():
        raise ConfigError(str(path), "no such file")
    rows = _csv_rows(path) if path.suffix.lower() == ".csv" else _parquet_rows(path)
    return _grouped(path, rows)


def _csv_rows(path: Path) -> Iterator[tuple[str, object, object]]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, strict=True)
            header = [name.strip() for name in reader.fieldnames or ()]
            for needed in ("arm", "reward"):
                if needed not in header:
                    raise ConfigError(
                        f"{path}:1", f'no column "{needed}"; expected arm,reward'
                    )
            reader.fieldnames = header
            for record in reader:
                where = f"{path}:{reader.line_num}"
                if None in record:
                    raise ConfigError(where, "more fields than the header has")
                yield where, record["arm"], record["reward"]
    except csv.Error as error:
        line = reader.reader.line_num  # the row that never ended
        raise ConfigError(f"{path}:{line}", f"bad CSV ({error})") from None
    except UnicodeDecodeError:
        raise ConfigError(str(path), "is not UTF-8 text") from None


def _parquet_rows(path: Path) -> Iterator[tuple[str, object, object]]:
    import pyarrow
    import pyarrow.parquet

    try:
        file = pyarrow.parquet.ParquetFile(path)
        names = file.schema_arrow.names
        for needed in ("arm", "reward"):
            if needed not in names:
                raise ConfigError(
                    str(path), f'no column "{needed}"; expected arm and reward'
                )
        row = 0
        for batch in file.iter_batches(columns=["arm", "reward"]):
            arms, rewards = (batch.column(i).to_pylist() for i in (0, 1))
            for arm, reward in zip(arms, rewards, strict=True):
                row += 1
                yield f"{path}, row {row}", arm, reward
    except pyarrow.ArrowException:
        raise ConfigError(str(path), "is not a readable Parquet file") from None


def _grouped(path: Path, rows: Iterable[tuple[str, object, object]]) -> RewardTable:
    groups: dict[str, list[float]] = {}
    for where, arm, reward in rows:
        name = "" if arm is None else str(arm).strip()
        if not name:
            raise ConfigError(where, "the arm is missing")
        groups.setdefault(name, []).append(_reward(where, reward))
    if not groups:
        raise ConfigError(str(path), "holds no rewards")
    return RewardTable(
        tuple(groups), tuple(np.array(values) for values in groups.values())
    )


def _reward(where: str, value: object) -> float:
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise ConfigError(where, "the reward is not a number") from None
    if not (math.isfinite(number) and 0 <= number <= 1):
        raise ConfigError(where, "the reward is outside [0, 1]")
    return number
