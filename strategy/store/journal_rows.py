"""How the journal's tables look, and how values become their texts.

A policy's state is written by difference: a round writes what it changed. A change has
the keys whose values are new. Where both values are mappings, it has the change of the
one to the other.
"""

from __future__ import annotations

import dataclasses
import json
import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from wallflower.protocol.secure_sum.session import Finding
from wallflower.strategy.bandit.policy import ArmView, EliminationReason
from wallflower.strategy.store.entries import DealingRecord, SumRecord

# Also counts up when a policy decides otherwise by the same sums: a record is judged by
# the rule that made it.
SCHEMA_VERSION = 6
OPEN_COHORTS = "SELECT cohort_id FROM cohort WHERE state = 'invited' ORDER BY rowid"
NEXT_DRAW = "SELECT coalesce(max(draw), 0) + 1 FROM cohort"
# A round's state is whole, or what changed since the round before.
WHOLE, CHANGED = "whole", "changed"
NEXT_MEETING = "SELECT coalesce(max(meeting), 0) + 1 FROM node"
USED = (
    "SELECT cohort_id, node_id, users FROM invitation "
    "WHERE (cohort_id, node_id) NOT IN (SELECT cohort_id, node_id FROM returned)"
)
USED_AFTER = (
    "SELECT cohort_id, node_id, users FROM invitation "
    "WHERE (cohort_id, node_id) NOT IN (SELECT cohort_id, node_id FROM returned) "
    "AND cohort_id IN (SELECT cohort_id FROM cohort WHERE round > ?)"
)
# SQLite counts people, so that looking at a run does not make an object of each.
ASKED = (
    "SELECT cohort_id, sum(json_array_length(users)) FROM invitation "
    "WHERE (cohort_id, node_id) NOT IN (SELECT cohort_id, node_id FROM returned) "
    "GROUP BY cohort_id"
)
PARTICIPATIONS = (
    "SELECT times, count(*) FROM ("
    "SELECT count(*) AS times FROM invitation, json_each(users) "
    "WHERE (cohort_id, node_id) NOT IN (SELECT cohort_id, node_id FROM returned) "
    "GROUP BY node_id, value) GROUP BY times"
)
SIZES = "SELECT cohort_id, node_id, json_array_length(users) FROM invitation"
SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
CREATE TABLE node (
    meeting  INTEGER NOT NULL,
    node_id  TEXT NOT NULL,
    users    INTEGER NOT NULL,
    left_out INTEGER NOT NULL,
    PRIMARY KEY (meeting, node_id)
) STRICT, WITHOUT ROWID;
CREATE TABLE cohort (
    cohort_id TEXT PRIMARY KEY,
    round     INTEGER NOT NULL,
    batch     INTEGER NOT NULL,
    arm       INTEGER NOT NULL,
    attempt   INTEGER NOT NULL,
    size      INTEGER NOT NULL,
    spec      BLOB NOT NULL,
    draw      INTEGER NOT NULL,
    state     TEXT NOT NULL CHECK (state IN ('invited', 'summed', 'void')),
    reason    TEXT NOT NULL DEFAULT '',
    result    TEXT,
    losses    TEXT NOT NULL DEFAULT '{}',
    UNIQUE (round, arm, attempt),
    CHECK ((state = 'summed') = (result IS NOT NULL))
) STRICT;
CREATE INDEX cohort_open ON cohort (state) WHERE state = 'invited';
CREATE INDEX cohort_draw ON cohort (draw);
CREATE TABLE invitation (
    cohort_id TEXT NOT NULL REFERENCES cohort,
    node_id   TEXT NOT NULL,
    users     TEXT NOT NULL,
    PRIMARY KEY (cohort_id, node_id)
) STRICT, WITHOUT ROWID;
CREATE TABLE blame (
    cohort_id TEXT NOT NULL REFERENCES cohort,
    node_id   TEXT NOT NULL,
    kind      TEXT NOT NULL
        CHECK (kind IN ('sent', 'out', 'suspect', 'unknown', 'server')),
    word      TEXT NOT NULL,
    PRIMARY KEY (cohort_id, node_id)
) STRICT, WITHOUT ROWID;
CREATE TABLE returned (
    cohort_id TEXT NOT NULL REFERENCES cohort,
    node_id   TEXT NOT NULL,
    reason    TEXT NOT NULL,
    PRIMARY KEY (cohort_id, node_id)
) STRICT, WITHOUT ROWID;
CREATE TABLE dealing (
    dealing_id TEXT PRIMARY KEY,
    nodes      INTEGER NOT NULL,
    reason     TEXT NOT NULL,
    dealers    TEXT NOT NULL,
    members    TEXT NOT NULL,
    findings   TEXT NOT NULL
) STRICT;
CREATE TABLE retired (
    arm    INTEGER PRIMARY KEY,
    round  INTEGER NOT NULL,
    reason TEXT NOT NULL
) STRICT;
CREATE TABLE round (
    number       INTEGER PRIMARY KEY,
    views        TEXT NOT NULL,
    policy_state TEXT NOT NULL,
    spent        TEXT NOT NULL,
    finished     TEXT
) STRICT;
"""


def state_text(before: Mapping[str, Any] | None, after: Mapping[str, Any]) -> str:
    """Write a policy's state by what changed since the round before."""
    changes = None if before is None else find_changes(before, after)
    told = {WHOLE: after} if changes is None else {CHANGED: changes}
    return json.dumps(told, separators=(",", ":"))


def state_from(before: Mapping[str, Any] | None, text: str) -> dict[str, Any]:
    """Read back what `state_text` wrote; `before` is the state of the round before."""
    told = json.loads(text)
    value = told[WHOLE] if WHOLE in told else told[CHANGED]
    if not isinstance(value, dict) or (before is None and WHOLE not in told):
        raise ValueError("a state that is no state, or changes of none")
    return value if before is None or WHOLE in told else apply_changes(before, value)


def views_text(views: Sequence[ArmView]) -> str:
    """Write the arms as they stand after a round as JSON."""
    return json.dumps([dataclasses.asdict(view) for view in views])


def views_from(text: str) -> tuple[ArmView, ...]:
    """Read back what `views_text` wrote."""
    views = []
    for fields in json.loads(text):
        reason = fields.pop("reason")
        found = None if reason is None else EliminationReason(**reason)
        views.append(ArmView(**fields, reason=found))
    return tuple(views)


def losses_text(losses: Mapping[str, int]) -> str:
    """Write the counts of lost users by reason."""
    return json.dumps(losses, sort_keys=True)


def sum_text(result: SumRecord) -> str:
    """Write a sum as JSON."""
    return json.dumps(
        {
            # Text: JSON readers elsewhere take large integers for doubles.
            "released": None if result.released is None else str(result.released),
            "modulus": str(result.modulus),
            "total": str(result.total),
            "precision": result.precision,
            "survivors": result.survivors,
            "nodes": result.nodes,
        }
    )


def sum_from(
    cohort_id: str, losses: Mapping[str, int], text: str | None
) -> SumRecord | None:
    """Read back what `sum_text` wrote; a cohort without a sum has None."""
    if text is None:
        return None
    value = json.loads(text)
    return SumRecord(
        cohort_id=cohort_id,
        released=None if value["released"] is None else int(value["released"]),
        modulus=int(value["modulus"]),
        total=int(value["total"]),
        precision=value["precision"],
        survivors=value["survivors"],
        nodes=tuple(value["nodes"]),
        losses=losses,
    )


def dealing_row(record: DealingRecord) -> tuple[str | int, ...]:
    """Write a dealing as its row."""
    findings = [(one.party, one.kind, one.word) for one in record.findings]
    return (
        record.dealing_id,
        record.nodes,
        record.reason,
        json.dumps(record.dealers),
        json.dumps(record.members),
        json.dumps(findings),
    )


def dealing_from(row: Sequence[Any]) -> DealingRecord:
    """Read back what `dealing_row` wrote."""
    dealing_id, nodes, reason, dealers, members, findings = row
    return DealingRecord(
        dealing_id=dealing_id,
        nodes=nodes,
        reason=reason,
        dealers=tuple(json.loads(dealers)),
        members=tuple(json.loads(members)),
        findings=tuple(Finding(*one) for one in json.loads(findings)),
    )


def write_findings(
    database: sqlite3.Connection, cohort_id: str, findings: Sequence[Finding]
) -> None:
    """Keep what is known of who caused what in a cohort."""
    database.executemany(
        "INSERT INTO blame VALUES (?, ?, ?, ?)",
        [(cohort_id, one.party, one.kind, one.word) for one in findings],
    )


Json: TypeAlias = Mapping[str, Any]


def find_changes(before: Json, after: Json) -> dict[str, Any] | None:
    """Return what makes `before` into `after`; None where a key is gone.

    Examples
    --------
    >>> find_changes({"a": {"b": 1, "c": 2}, "d": 3}, {"a": {"b": 1, "c": 4}, "d": 3})
    {'a': {'c': 4}}
    >>> find_changes({"a": {"b": 1}}, {"a": {}}) is None
    True
    """
    if before.keys() - after.keys():
        return None
    changes: dict[str, Any] = {}
    for key, value in after.items():
        if key in before and before[key] == value:
            continue
        changes[key] = value
        if isinstance(value, dict) and isinstance(before.get(key), dict):
            inside = find_changes(before[key], value)
            if inside is None:
                return None
            changes[key] = inside
    return changes


def apply_changes(before: Json, changes: Json) -> dict[str, Any]:
    """Return the mapping that `find_changes` was given as the later one.

    What did not change is shared with `before`, which stays as it is.
    """
    after = dict(before)
    for key, value in changes.items():
        old = after.get(key)
        both = isinstance(value, dict) and isinstance(old, dict)
        after[key] = apply_changes(old, value) if both and old is not None else value
    return after
