"""A run's rows for other programs: CSV, JSON, Parquet, notebooks.

Two tables: `rounds` has every arm after every round, `cohorts` every attempt at a sum.
They hold counts, bounds and names of arms; no person, no outcome, no node.
"""

from __future__ import annotations

import csv
import dataclasses
import html
import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wallflower.protocol.errors import optional_module
from wallflower.results.cohort_rows import CohortRow
from wallflower.results.history import ArmRow, History, read_history
from wallflower.results.result import RunResult
from wallflower.results.units import view_in_unit
from wallflower.strategy.store.journal import Journal

if TYPE_CHECKING:
    import pandas

TABLES = ("rounds", "cohorts")
FORMATS = ("csv", "json", "parquet")
_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # a spreadsheet computes such a cell
Table = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Run:
    """A run for notebooks: typed rows, pandas where it is there, the page as a cell.

    Attributes
    ----------
    path : its directory.
    history : everything the journal tells, as typed rows.
    """

    path: Path
    history: History

    @property
    def result(self) -> RunResult:
        """What it has come to."""
        return self.history.result

    @property
    def rounds(self) -> tuple[ArmRow, ...]:
        """Every arm after every round, in the unit of the outcomes."""
        return _rounds(self.history)

    @property
    def cohorts(self) -> tuple[CohortRow, ...]:
        """Every attempt at a sum."""
        return self.history.cohorts

    def to_pandas(self, table: str = "rounds") -> pandas.DataFrame:
        """Give a table as a data frame; pandas must be installed."""
        import pandas

        return pandas.DataFrame(flat_table(self.history, table))

    def _repr_html_(self) -> str:
        """Show the report in a notebook's cell, apart from the notebook's styles."""
        from wallflower.results.page import content, render

        with Journal.read(self.path) as journal:
            page = render(content(journal))
        return (
            f'<iframe srcdoc="{html.escape(page)}" sandbox title="Wallflower report" '
            'style="width: 100%; height: 42rem; border: 0"></iframe>'
        )


def load_run(path: Path | str) -> Run:
    """Read a run's directory, finished or under way; an altered one is refused.

    Parameters
    ----------
    path : Path | str
        The run directory, the one that holds ``journal.sqlite``.
    """
    directory = Path(path)
    with Journal.read(directory) as journal:
        journal.check_whole()
        return Run(directory, read_history(journal))


def tables_of(history: History) -> Mapping[str, Table]:
    """Return both tables as rows of plain values, in the unit of the outcomes."""
    return {
        "rounds": [dataclasses.asdict(row) for row in _rounds(history)],
        "cohorts": [_cohort(row) for row in history.cohorts],
    }


def flat_table(history: History, table: str) -> Table:
    """Return a table that stands alone: its rows state the range and unit, if any."""
    rows = tables_of(history)[table]
    stated = history.result.config.reward_range.as_json()
    if not stated or table != "rounds":
        return rows
    low, high = stated["range"]
    columns = {"range_low": low, "range_high": high, "unit": stated["unit"]}
    return [{**row, **columns} for row in rows]


def history_json(history: History) -> Table:
    """Give the rounds, each with its time and all arms after it."""
    arms: dict[int, list[dict[str, Any]]] = {}
    for row in map(dataclasses.asdict, _rounds(history)):
        arms.setdefault(row.pop("round"), []).append(row)
    return [
        {
            **dataclasses.asdict(one),
            "seconds": one.seconds,
            "arms": arms.get(one.round, []),
        }
        for one in history.rounds
    ]


def as_csv(rows: Table) -> str:
    """Return rows with a heading; losses become ``reason=count`` words.

    A name that a spreadsheet would compute (it begins with ``= + - @``, a tab or a
    carriage return) gets an apostrophe before it.
    """
    text = io.StringIO()
    if rows:
        writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(
            {key: _inert(value) for key, value in _flat(row).items()} for row in rows
        )
    return text.getvalue()


def as_parquet(rows: Table) -> bytes:
    """Return rows as the bytes of one Parquet file."""
    pyarrow = optional_module("pyarrow", "parquet")
    parquet = optional_module("pyarrow.parquet", "parquet")
    file = io.BytesIO()
    parquet.write_table(pyarrow.Table.from_pylist([_flat(row) for row in rows]), file)
    return file.getvalue()


def _rounds(history: History) -> tuple[ArmRow, ...]:
    measured = history.result.config.reward_range
    return tuple(
        ArmRow(**view_in_unit(dataclasses.asdict(row), measured))
        for row in history.arms
    )


def _cohort(row: CohortRow) -> dict[str, Any]:
    values = {
        field.name: getattr(row, field.name)
        for field in dataclasses.fields(row)
        if field.name != "findings"  # they name nodes
    }
    return {**values, "losses": dict(row.losses), "lost": row.lost}


def _flat(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: (
            " ".join(f"{reason}={users}" for reason, users in value.items())
            if isinstance(value, Mapping)
            else value
        )
        for key, value in row.items()
    }


def _inert(value: object) -> object:
    is_formula = isinstance(value, str) and value.startswith(_FORMULA)
    return f"'{value}" if is_formula else value
