"""Keep measured tables: as CSV below docs/figures, or between two marks of a page."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path


def write_csv(path: Path, note: str, rows: Iterable[Sequence[object]]) -> None:
    """Write rows, the first one with their names, below a line that explains them."""
    with path.open("w", encoding="utf-8", newline="") as file:
        file.write(f"# {note}\n")
        csv.writer(file, lineterminator="\n").writerows(rows)


def read_csv(path: Path) -> tuple[str, list[dict[str, str]]]:
    """Return the line that explains a table, and its rows."""
    with path.open(encoding="utf-8", newline="") as file:
        note = file.readline().removeprefix("# ").strip()
        return note, list(csv.DictReader(file))


def write_between_marks(path: Path, gathered: str, marks: tuple[str, str]) -> None:
    """Put what was gathered into a page, in the place of what stood there."""
    text = path.read_text(encoding="utf-8")
    head, begins, rest = text.partition(marks[0])
    _, ends, tail = rest.partition(marks[1])
    if not begins or not ends:
        raise ValueError(f"{path} has no {marks[0]} … {marks[1]}")
    path.write_text(f"{head}{begins}\n{gathered}{ends}{tail}", encoding="utf-8")
