"""Print a benchmark's rows as a table and keep them as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

OUT = Path(__file__).parent / "out"
Row = Mapping[str, str | float | int | None]


def show(title: str, rows: Sequence[Row]) -> None:
    """Print rows under the keys of the first one; numbers stand to the right."""
    columns = list(rows[0])
    cells = [columns, *([_text(row.get(name)) for name in columns] for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(columns))]
    print(f"\n{title}")
    for line in cells:
        aligned = [line[0].ljust(widths[0])]
        aligned += [
            cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True)
        ]
        print("  " + "  ".join(aligned).rstrip())


def keep(name: str, tables: Mapping[str, Sequence[Row]]) -> None:
    """Write the rows to benchmarks/out/<name>.json, which git ignores."""
    OUT.mkdir(exist_ok=True)
    path = OUT / f"{name}.json"
    path.write_text(json.dumps({"schema_version": 1, **tables}, indent=1) + "\n")


def _text(value: str | float | int | None) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return str(value)
