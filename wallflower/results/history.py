"""A run as typed rows, for pages, notebooks and other programs: CSV, JSON, Parquet.

Everything is read from the journal. Three tables are exported: `rounds` has every arm
after every round, `cohorts` every attempt at a sum, `differences` every arm beside
control and beside the leader. They hold counts, bounds and names of arms; no person, no
outcome, no node.
"""

from __future__ import annotations

import csv
import dataclasses
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from wallflower.policy_text import values_in_unit
from wallflower.protocol.errors import optional_module
from wallflower.results.cohorts import CohortRow
from wallflower.results.result import RunResult, read_result
from wallflower.strategy.bandit.policy import ArmView, EliminationReason
from wallflower.strategy.store.chain import Entry
from wallflower.strategy.store.entries import (
    INVITED,
    PAUSED,
    RESUMED,
    ROUND,
    WAITING,
)
from wallflower.strategy.store.journal import Journal


@dataclass(frozen=True, slots=True)
class ArmRow:
    """One arm after one round; estimate and interval in [0, 1], as they were summed.

    `users` are in its sums, of those `asked`. `fell` marks the round in which the arm
    went out; later rows repeat where it stood.
    """

    round: int
    arm: str
    users: int
    asked: int
    estimate: float | None
    lower: float
    upper: float
    active: bool
    fell: bool
    reason: EliminationReason | None
    retired: bool  # taken out by hand, not by the sums
    note: str  # an operator's words for it


@dataclass(frozen=True, slots=True)
class RoundRow:
    """A round on the clock: Unix seconds, None while it is not finished."""

    round: int
    started_at: float
    finished_at: float | None
    users: int

    @property
    def seconds(self) -> float | None:
        """From the first invitation to the decision, stops in between included."""
        return None if self.finished_at is None else self.finished_at - self.started_at


@dataclass(frozen=True, slots=True)
class History:
    """All that a journal tells of a run; `result` sums it up."""

    result: RunResult
    created_at: float
    ended_at: float
    entries: int
    arms: tuple[ArmRow, ...]
    cohorts: tuple[CohortRow, ...]
    rounds: tuple[RoundRow, ...]
    steps: tuple[Entry, ...]  # what an operator or an outage did
    most_asked: int  # how often the busiest person was asked


def read_history(journal: Journal) -> History:
    """Read a whole journal as rows."""
    result, entries = read_result(journal), journal.entries()
    return History(
        result=result,
        created_at=journal.created_at,
        ended_at=entries[-1].at,
        entries=len(entries),
        arms=arm_rows(_read_views(journal), result.config.experiment.arms),
        cohorts=result.rows,
        rounds=tuple(_round_rows(result.rows, entries)),
        steps=tuple(
            entry for entry in entries if entry.kind in (RESUMED, WAITING, PAUSED)
        ),
        most_asked=max(journal.count_participations(), default=0),
    )


def _read_views(journal: Journal) -> Iterable[tuple[int, Sequence[ArmView]]]:
    """Yield the rounds' views; an arm retired by hand goes out after a round's end."""
    by_hand = {(one.arm, one.round_number - 1): one for one in journal.retired()}
    for record in journal.rounds():
        views = []
        for view in record.views:
            if (by := by_hand.get((view.arm, record.number))) is not None:
                view = replace(view, active=False, retired=True, note=by.reason)
            views.append(view)
        yield record.number, views


def arm_rows(
    rounds: Iterable[tuple[int, Sequence[ArmView]]], names: Sequence[str]
) -> tuple[ArmRow, ...]:
    """Return every arm after every round, from the rounds' numbers and views."""
    out: set[int] = set()
    rows = []
    for number, views in rounds:
        for view in views:
            fell = not view.active and view.arm not in out
            if fell:
                out.add(view.arm)
            rows.append(
                ArmRow(
                    round=number,
                    arm=names[view.arm],
                    users=view.users,
                    asked=view.asked,
                    estimate=view.estimate,
                    lower=view.lower,
                    upper=view.upper,
                    active=view.active,
                    fell=fell,
                    reason=view.reason,
                    retired=view.retired,
                    note=view.note,
                )
            )
    return tuple(rows)


def _round_rows(
    cohorts: Sequence[CohortRow], entries: Sequence[Entry]
) -> Iterable[RoundRow]:
    asked_at = {e.subject: e.at for e in entries if e.kind == INVITED}
    done_at = {int(e.subject): e.at for e in entries if e.kind == ROUND}
    by_round: dict[int, list[CohortRow]] = {}
    for row in cohorts:
        by_round.setdefault(row.round, []).append(row)
    for number, mine in sorted(by_round.items()):
        yield RoundRow(
            number,
            min(asked_at[row.cohort] for row in mine),
            done_at.get(number),
            sum(row.invited for row in mine),
        )


TABLES = ("rounds", "cohorts", "differences")
FORMATS = ("csv", "json", "parquet")
_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # a spreadsheet computes such a cell
Table = list[dict[str, Any]]


def tables_of(history: History) -> Mapping[str, Table]:
    """Return every table as rows of plain values, in the unit of the outcomes."""
    compared = history.result.comparisons()
    return {
        "rounds": _round_values(history),
        "cohorts": [_cohort_values(row) for row in history.cohorts],
        "differences": [] if compared is None else compared.rows(),
    }


def flat_table(history: History, table: str) -> Table:
    """Return a table that stands alone: its rows state the range and unit, if any."""
    rows = tables_of(history)[table]
    stated = history.result.config.reward_range.as_json()
    if not stated or table == "cohorts":
        return rows
    low, high = stated["range"]
    columns = {"range_low": low, "range_high": high, "unit": stated["unit"]}
    return [{**row, **columns} for row in rows]


def history_json(history: History) -> Table:
    """Return the rounds, each with its time and all arms after it."""
    arms: dict[int, list[dict[str, Any]]] = {}
    for row in _round_values(history):
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


def _round_values(history: History) -> list[dict[str, Any]]:
    """Return every arm after every round as plain values in the unit."""
    config = history.result.config
    return [
        values_in_unit(row, config.experiment.arms, config.reward_range)
        for row in history.arms
    ]


def _cohort_values(row: CohortRow) -> dict[str, Any]:
    values = dataclasses.asdict(row)
    del values["findings"]  # they name nodes
    return {**values, "lost": row.lost}


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
