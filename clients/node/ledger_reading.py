"""What a ledger says of one run, read without touching it: for whoever checks a run."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from wallflower.protocol.errors import UnavailableError
from wallflower.protocol.files.sqlite import read_database


def spends_of(path: Path, run_id: str) -> Mapping[tuple[str, str], tuple[str, ...]]:
    """Give the users who spent in a run, by cohort and node."""
    try:
        with closing(read_database(path)) as database:
            rows = database.execute(
                "SELECT cohort_id, node_id, users FROM spend WHERE run_id = ?",
                (run_id,),
            ).fetchall()
    except sqlite3.Error as error:
        raise UnavailableError(f"ledger {path} cannot be read ({error})") from None
    return {(cohort, node): tuple(json.loads(users)) for cohort, node, users in rows}
