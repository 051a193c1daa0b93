"""Answers that are given once, written down before they leave, for ever.

A member that tallies two sets of one cohort gives away their difference, and so does a
node that masks, confirms or unmasks twice. Each such answer is claimed in the ledger's
file first: by node, run, cohort and stage, with a digest of request and answer. The
very same answer to the very same request may leave again; nothing else ever does.
Nothing a server says, no new process and no new key takes a claim back.

A node that attends a gRPC server for a run claims that too: it takes no Flower messages
for the run from then on.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from dataclasses import dataclass

from wallflower.protocol.errors import RefusalError

SCHEMA = (
    """CREATE TABLE IF NOT EXISTS claim (
        number    INTEGER PRIMARY KEY,
        node_id   TEXT NOT NULL,
        run_id    TEXT NOT NULL,
        cohort_id TEXT NOT NULL,
        stage     TEXT NOT NULL,
        digest    BLOB NOT NULL,
        at        REAL NOT NULL,
        UNIQUE (node_id, run_id, cohort_id, stage)
    ) STRICT""",
    """CREATE TRIGGER IF NOT EXISTS claim_is_not_changed BEFORE UPDATE ON claim
    BEGIN SELECT RAISE(ABORT, 'a claim is for ever'); END""",
    """CREATE TRIGGER IF NOT EXISTS claim_is_not_removed BEFORE DELETE ON claim
    BEGIN SELECT RAISE(ABORT, 'a claim is for ever'); END""",
)
_ATTENDED = "attended"  # a stage of no cohort: the run was attended at a gRPC server


@dataclass(frozen=True, slots=True)
class OneTimeAnswer:
    """One answer of one node; `digest` is of what was asked and what is answered."""

    node_id: str
    run_id: str
    cohort_id: str
    stage: str
    digest: bytes

    @classmethod
    def attendance(cls, node_id: str, run_id: str) -> OneTimeAnswer:
        """Claim that a run's work goes through a gRPC server."""
        return cls(node_id, run_id, "", _ATTENDED, b"")


def append(database: sqlite3.Connection, claim: OneTimeAnswer) -> RefusalError | None:
    """Write a claim in the caller's transaction, or say why it is refused."""
    place = (claim.node_id, claim.run_id, claim.cohort_id, claim.stage)
    row = database.execute(
        "SELECT digest FROM claim "
        "WHERE (node_id, run_id, cohort_id, stage) = (?, ?, ?, ?)",
        place,
    ).fetchone()
    if row is None:
        database.execute(
            "INSERT INTO claim (node_id, run_id, cohort_id, stage, digest, at) "
            "VALUES (?, ?, ?, ?, ?, ?)",
            (*place, claim.digest, time.time()),
        )
        return None
    if bytes(row[0]) == claim.digest:
        return None
    return RefusalError(
        "cohort-already-answered",
        f"stage {claim.stage} of cohort {claim.cohort_id} had its one answer",
    )


def after(
    database: sqlite3.Connection, number: int
) -> Iterator[tuple[int, str, str, str]]:
    """Give number, node, run and cohort of every claim after a number, in order."""
    return database.execute(
        "SELECT number, node_id, run_id, cohort_id FROM claim WHERE number > ? "
        "ORDER BY number",
        (number,),
    )


def attended(database: sqlite3.Connection, node_id: str, run_id: str) -> bool:
    """Tell whether a run was ever attended at a gRPC server."""
    found = database.execute(
        "SELECT 1 FROM claim WHERE (node_id, run_id, cohort_id, stage) = (?, ?, '', ?)",
        (node_id, run_id, _ATTENDED),
    )
    return found.fetchone() is not None
