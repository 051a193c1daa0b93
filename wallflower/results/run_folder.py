"""A run's folder: where it lies, and whether the run can go on from it.

Whoever only looks at a run needs this, and no engine.
"""

from __future__ import annotations

from pathlib import Path

from wallflower.protocol.errors import JournalError, WallflowerError
from wallflower.results.hosted_ledger import check_hosted_ledger
from wallflower.strategy.store.journal import Journal
from wallflower.strategy.store.store import FILE_NAME

RUNS = Path("runs")


def find_run(run: str) -> Path:
    """Find a run by its directory, or by its id below ``runs/``."""
    for directory in (Path(run), RUNS / run):
        if (directory / FILE_NAME).is_file():
            return directory
    known = sorted(RUNS.glob(f"*/{FILE_NAME}"), key=lambda path: path.stat().st_mtime)
    there = (
        f"the latest in {RUNS}: {known[-1].parent.name}"
        if known
        else "`run` prints where it is"
    )
    raise JournalError(
        f"no run {run}: neither {run} nor {RUNS / run} has a journal; {there}"
    )


def check_resumable(journal: Journal) -> None:
    """Raise JournalError or UnavailableError for what `resume` would refuse."""
    journal.check_whole()
    check_hosted_ledger(journal)


def find_hindrance(directory: Path) -> WallflowerError | None:
    """Return what `resume` would refuse a run for as it lies there, or None."""
    try:
        with Journal.read(directory) as journal:
            check_resumable(journal)
    except WallflowerError as error:
        return error
    return None


def advise(directory: Path) -> str:
    """Say how to go on with a run, or why it cannot be resumed as it lies there."""
    hindrance = find_hindrance(directory)
    if hindrance is not None:
        return f"it cannot be resumed as it is: {hindrance}"
    return f"to go on: wallflower resume {directory}"
