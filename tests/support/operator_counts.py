"""Every count that the honest operator of a run has, wherever it is shown.

Noised sums are left out, and what follows from them: means, intervals, decisions. So
are times, ids and hashes. All else counts people, nodes, cohorts or messages.
"""

from __future__ import annotations

import asyncio
import csv
import dataclasses
import io
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyarrow import parquet

from tests.wallflower.results.test_page import Page
from tests.wallflower.test_run_commands import invoke
from wallflower.results.history import TABLES
from wallflower.results.result import read_result
from wallflower.strategy.measured import families
from wallflower.strategy.store import events
from wallflower.strategy.store.event_log import decode
from wallflower.strategy.store.journal import Journal
from wallflower.strategy.watch.telemetry import RunMetrics

# Columns that are no counts, or follow from the noised sums.
_NO_COUNT = frozenset({"cohort", "estimate", "lower", "upper"})
_DECIDED = frozenset({"active", "fell", "reason"})
# All of this table, and the page's tables of it, follows from the noised sums.
_DIFFERENCES, _PAGE_DIFFERENCES = "differences", "Every arm less "
_PAGE_NO_COUNT = frozenset(
    {"mean", "from", "to", "interval", "outcome", "decision", "began", "time"}
)
_RUN_FACTS = ("Run", "Began", "Configuration (SHA-256)")
_MISSING_DECIDED = frozenset({"holds_for", "doubtful_arms", "sentence"})


def counts_of(run_dir: Path) -> dict[str, object]:
    """Return the counts of a run's directory, events, metrics, status and the rest."""
    with Journal.read(run_dir) as journal:
        cohorts = [
            (c.arm, c.attempt, c.state, c.reason, c.size, dict(c.losses))
            for c in journal.cohorts()
        ]
        sums = sorted(
            (c.arm, c.result.survivors, len(c.result.nodes))
            for c in journal.cohorts()
            if c.result is not None
        )
        entries = sorted(entry.kind for entry in journal.entries())
        result = read_result(journal)
    status = json.loads(invoke("status", run_dir, "--format", "json")[1])
    return {
        "cohorts": sorted(cohorts, key=str),
        "sums": sums,
        "entries": entries,
        "losses": dict(result.losses),
        "people": (result.invited, result.answered),
        "metrics": metrics_of(run_dir),
        "events": events_of(run_dir),
        "status": status["users"],
        "missing": _without(status["missing"], _MISSING_DECIDED),
        "export": exports_of(run_dir),
        "page": page_counts_of(run_dir),
    }


def hear_events(run_dir: Path) -> list[events.Event]:
    """Return what the run has told, in order."""
    lines = (run_dir / "events.jsonl").read_text().splitlines()
    return [decode(line) for line in lines]


def events_of(run_dir: Path) -> list[str]:
    """Return all events without times, ids and what was decided; arms in any order.

    Progress is left out: it tells what had come by an instant of the wall clock.
    """
    reported = []
    for event in hear_events(run_dir):
        shown = dataclasses.asdict(event)
        for key in ("cohort_id", "dealing_id", "seconds", "run_id", "head", "finished"):
            shown.pop(key, None)
        if "views" in shown:
            shown["views"] = [(v["users"], v["asked"]) for v in shown["views"]]
        if not isinstance(event, events.CohortProgress):
            reported.append(f"{type(event).__name__} {shown}")
    return sorted(reported)


def metrics_of(run_dir: Path) -> dict[str, float]:
    """Return what Prometheus has after the last event; of times how many there are."""
    metrics = RunMetrics("r", clock=lambda: 0.0)
    for event in hear_events(run_dir):
        asyncio.run(metrics(event))
    return count_samples(metrics)


def count_samples(counts: object, *, times: bool = False) -> dict[str, float]:
    """Return the samples that Prometheus has of counts; on request buckets of times.

    Which arms are left follows from the noised sums and is no sample here.
    """
    found = {
        f"{sample.name}{sample.labels}": sample.value
        for family in families(counts)
        for sample in family.samples
    }
    left_out = r"wallflower_run_(arms_active|finished)\b"
    if not times:
        left_out += r"|\w+_seconds(_sum|_bucket)\b"
    return {
        name: value for name, value in found.items() if not re.match(left_out, name)
    }


def exports_of(run_dir: Path) -> dict[str, object]:
    """Return the counts of every table in every format."""
    found: dict[str, object] = {}
    tables = [table for table in TABLES if table != _DIFFERENCES]
    for table in tables:
        code, text = invoke("export", run_dir, "--table", table)
        assert code == 0, text
        found[f"csv {table}"] = _rows(list(csv.DictReader(io.StringIO(text))), table)
        path = run_dir.with_name(f"{run_dir.name}-{table}.parquet")
        words = ("--table", table, "--format", "parquet", "--output", path)
        code, text = invoke("export", run_dir, *words)
        assert code == 0, text
        found[f"parquet {table}"] = _rows(parquet.read_table(path).to_pylist(), table)
    code, text = invoke("export", run_dir, "--format", "json")
    assert code == 0, text
    reported = json.loads(text)
    del reported[_DIFFERENCES]
    found |= {f"json {table}": _rows(reported.pop(table), table) for table in tables}
    reported["missing"] = _without(reported["missing"], _MISSING_DECIDED)
    found["json"] = _without(reported, {"run", "head"})
    return found


def _rows(rows: list[Any], table: str) -> list[str]:
    decided = _DECIDED if table == "rounds" else frozenset()
    return sorted(str(_without(row, _NO_COUNT | decided)) for row in rows)


def _without(row: Mapping[str, Any], left_out: set[str] | frozenset[str]) -> Any:
    return {key: value for key, value in row.items() if key not in left_out}


def page_counts_of(run_dir: Path) -> dict[str, object]:
    """Return the figures and tables of the report, without columns of other things."""
    path = run_dir.with_name(f"{run_dir.name}.html")
    code, text = invoke("report", run_dir, "--output", path)
    assert code == 0, text
    page = Page(path)
    _, _, health = page.flat.partition(" Health ")
    figures, _, _ = health.partition(" Do people answer")
    tables = {
        caption: rows
        for caption, rows in page.tables.items()
        if not caption.startswith(_PAGE_DIFFERENCES)
    }
    found: dict[str, object] = {"figures": figures, "tables": sorted(tables)}
    for caption, (heading, *rows) in tables.items():
        if caption == "The run":
            kept = [row for row in (heading, *rows) if row[0] not in _RUN_FACTS]
        elif caption.startswith("The technical terms"):
            kept = [heading, *rows]
        else:
            columns = [
                number
                for number, name in enumerate(heading)
                if not name.startswith("picture") and name.strip() not in _PAGE_NO_COUNT
            ]
            kept = [[row[number] for number in columns] for row in (heading, *rows)]
        found[caption] = sorted(
            [" ".join(cell.split()) for cell in row] for row in kept
        )
    return found
