"""SQLite's statements as PostgreSQL takes them, and those that only it needs.

Tables and queries are written once (`sql`, `seat_sql`). What differs by name is
translated here; what differs by kind, such as locks on rows, stands here whole.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping

from wallflower.strategy.store import seat_sql, sql

# Text is sorted by its bytes, as SQLite does, so that the chain's digests are the same.
_WORDS = (
    (r"\?", "%s"),
    (r"/\* for update \*/", "FOR UPDATE OF seat"),
    (r"\bjson_array\(([\w.]+)\)", r"json_build_array(\1)::TEXT"),
    (r"\bTEXT\b", 'TEXT COLLATE "C"'),
    (r"\bBLOB\b", "BYTEA"),
    (r"\bINTEGER\b", "BIGINT"),
    (r"\bREAL\b", "DOUBLE PRECISION"),
    (r"\bhex\((\w+)\)", r"upper(encode(\1, 'hex'))"),
    (r"json_array_length\((\w+)\)", r"json_array_length(\1::json)"),
    (
        r", json_each\((\w+)\)",
        r", json_array_elements_text(\1::json) AS each(value)",
    ),
    (
        r"\bseat IN \(SELECT value FROM json_each\(%s\)\)",
        "seat = ANY (ARRAY(SELECT json_array_elements_text(%s::json)::BIGINT))",
    ),
    (
        r"\bvisitor IN \(SELECT value FROM json_each\(%s\)\)",
        "visitor = ANY (ARRAY(SELECT json_array_elements_text(%s::json)))",
    ),
)
_ROW_ID = ", rowid BIGINT GENERATED ALWAYS AS IDENTITY)"

_WHOLE: Mapping[str, str] = {
    sql.VERSION: "SELECT version FROM version",
    sql.SET_VERSION: f"CREATE TABLE version AS SELECT {sql.SCHEMA_VERSION} AS version",
    # PostgreSQL checks its pages itself, where its administrator told it to.
    sql.DAMAGE: "SELECT 'ok'",
    seat_sql.ADD_SEATS: (
        "INSERT INTO seat SELECT %s + place - 1, value::BIGINT, 'free', NULL, NULL "
        "FROM json_array_elements_text(%s::json) WITH ORDINALITY AS each(value, place)"
    ),
    seat_sql.FREE_SEATS: (
        "SELECT number, cohort FROM seat WHERE state = 'free' ORDER BY number "
        "LIMIT %s FOR UPDATE SKIP LOCKED"
    ),
    # Sorted, so that no two workers wait for each other.
    seat_sql.LOCK_VISITORS: (
        "SELECT pg_advisory_xact_lock(key) FROM ("
        "SELECT DISTINCT hashtextextended(visitor, 0) AS key "
        "FROM json_array_elements_text(%s::json) AS each(visitor) ORDER BY key"
        ") AS keys"
    ),
    # Whoever changes seats waits, and nobody else.
    seat_sql.LOCK_SEATS: "LOCK TABLE seat IN EXCLUSIVE MODE",
    seat_sql.AFTER_OPENING: "ANALYZE seat",
}


@functools.cache
def translate(statement: str) -> str:
    """Return a statement of SQLite's as PostgreSQL takes it."""
    if statement in _WHOLE:
        return _WHOLE[statement]
    text = statement
    for pattern, replacement in _WORDS:
        text = re.sub(pattern, replacement, text)
    if text.lstrip().startswith("CREATE TABLE"):
        has_key = "BIGINT PRIMARY KEY" in text
        text = re.sub(r"\)\s*STRICT, WITHOUT ROWID", ")", text)
        text = re.sub(r"\)\s*STRICT", ")" if has_key else _ROW_ID, text)
    return text


LEASE_SCHEMA = """
CREATE TABLE IF NOT EXISTS lease (
    one     INTEGER PRIMARY KEY CHECK (one = 1),
    token   TEXT NOT NULL UNIQUE,
    holder  TEXT NOT NULL,
    expires TIMESTAMPTZ NOT NULL
);
INSERT INTO lease VALUES (1, '', '', '-infinity') ON CONFLICT DO NOTHING;
CREATE TABLE IF NOT EXISTS request (
    arm    INTEGER PRIMARY KEY,
    reason TEXT NOT NULL
)
"""
# A new token is a new key, so it waits for every transaction that `FENCE` let in.
TAKE_LEASE = (
    "UPDATE lease SET token = %s, holder = %s, "
    "expires = clock_timestamp() + make_interval(secs => %s) "
    "WHERE expires < clock_timestamp() RETURNING one"
)
RENEW_LEASE = (
    "UPDATE lease SET expires = clock_timestamp() + make_interval(secs => %s) "
    "WHERE token = %s RETURNING one"
)
RELEASE_LEASE = "UPDATE lease SET expires = '-infinity' WHERE token = %s"
LEASE = "SELECT holder, expires > clock_timestamp(), expires::TEXT FROM lease"
FENCE = "SELECT pg_current_xact_id()::TEXT FROM lease WHERE token = %s FOR KEY SHARE"
OUTCOME = "SELECT pg_xact_status(%s::xid8)"

PAUSE = -1  # in the place of an arm
ADD_REQUEST = (
    "INSERT INTO request VALUES (%s, %s) ON CONFLICT (arm) DO UPDATE "
    "SET reason = excluded.reason"
)
REQUESTS = "SELECT arm, reason FROM request ORDER BY arm"
DROP_REQUEST = "DELETE FROM request WHERE arm = %s"
