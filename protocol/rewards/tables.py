"""Read the rows of tables of users, from CSV or Parquet.

A mistake is reported with its line (CSV) or row (Parquet). The offending value is
never repeated: it may be somebody's reward.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path

from wallflower.protocol.errors import ConfigError, not_text, optional_module

_SUFFIXES = (".csv", ".parquet")


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
    except OSError as error:
        raise ConfigError(str(path), f"cannot be read ({error.strerror})") from None


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
