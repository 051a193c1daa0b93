"""Every SQL statement of a run: the journal's tables, its chain, and the spool's.

A `?` stands for a value; an entry's subject is always text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from wallflower.strategy.store import archive_sql, seat_sql
from wallflower.strategy.store.entries import (
    ARCHIVED,
    CLOSED,
    DEALT,
    FOUNDED,
    INVITED,
    LIMITED,
    MET,
    OPENED,
    PAUSED,
    RESUMED,
    RETIRED,
    RETURNED,
    ROUND,
    SUMMED,
    VOID,
    WAITING,
)

# --- the journal ---------------------------------------------------------------

# Also counts up when a policy decides otherwise by the same sums: a record is judged by
# the rule that made it.
SCHEMA_VERSION = 10
JOURNAL_SCHEMA = (
    """
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
CREATE TABLE entry (
    number  INTEGER PRIMARY KEY,
    at      REAL NOT NULL,
    kind    TEXT NOT NULL,
    subject TEXT NOT NULL,
    digest  TEXT NOT NULL,
    link    TEXT NOT NULL UNIQUE
) STRICT;
"""
    + archive_sql.SALT_SCHEMA
    + seat_sql.SEAT_SCHEMA
)

VERSION = "PRAGMA user_version"
SET_VERSION = f"PRAGMA user_version = {SCHEMA_VERSION}"
DAMAGE = "PRAGMA integrity_check(1)"

ADD_META = "INSERT INTO meta VALUES (?, ?)"
ADD_NODE = "INSERT INTO node VALUES (?, ?, ?, ?)"
ADD_COHORT = (
    "INSERT INTO cohort (cohort_id, round, batch, arm, attempt, size, "
    "spec, draw, state) VALUES (?, ?, ?, ?, ?, ?, ?, ?, 'invited')"
)
ADD_INVITATION = "INSERT INTO invitation VALUES (?, ?, ?)"
ADD_FINDING = "INSERT INTO blame VALUES (?, ?, ?, ?)"
ADD_RETURNED = "INSERT INTO returned VALUES (?, ?, ?)"
ADD_DEALING = "INSERT INTO dealing VALUES (?, ?, ?, ?, ?, ?)"
ADD_RETIRED = "INSERT INTO retired VALUES (?, ?, ?)"
ADD_ROUND = "INSERT INTO round VALUES (?, ?, ?, ?, ?)"
VOID_COHORT = (
    "UPDATE cohort SET state = 'void', reason = ?, losses = ? "
    "WHERE cohort_id = ? AND state = 'invited'"
)
VOID_OPEN = "UPDATE cohort SET state = 'void', reason = ? WHERE state = 'invited'"
SUM_COHORT = (
    "UPDATE cohort SET state = 'summed', result = ?, losses = ? "
    "WHERE cohort_id = ? AND round = ? AND state = 'invited'"
)

META = "SELECT value FROM meta WHERE key = ?"
NEXT_MEETING = "SELECT coalesce(max(meeting), 0) + 1 FROM node"
MEETINGS = "SELECT meeting, node_id, users, left_out FROM node ORDER BY meeting"
NEXT_DRAW = "SELECT coalesce(max(draw), 0) + 1 FROM cohort"
OPEN_COHORTS = "SELECT cohort_id FROM cohort WHERE state = 'invited' ORDER BY rowid"
COHORTS = (
    "SELECT cohort_id, round, batch, arm, attempt, size, spec, draw, state, "
    "reason, losses, result FROM cohort ORDER BY round, arm, attempt"
)
COHORT_STATES = "SELECT cohort_id, state FROM cohort"
FINDINGS = "SELECT cohort_id, node_id, kind, word FROM blame"
RETURNED_USERS = "SELECT cohort_id, node_id, reason FROM returned"
DEALINGS = (
    "SELECT dealing_id, nodes, reason, dealers, members, findings FROM dealing "
    "ORDER BY rowid"
)
RETIRED_ARMS = "SELECT arm, round, reason FROM retired ORDER BY arm"
COUNT_ROUNDS = "SELECT count(*) FROM round"
ROUNDS = (
    "SELECT number, views, policy_state, spent, finished FROM round ORDER BY number"
)
LAST_ROUND = (
    "SELECT number, views, spent, finished FROM round ORDER BY number DESC LIMIT 1"
)
STATES = "SELECT number, policy_state FROM round ORDER BY number"
# Whoever arrived is a node of their own, with one user of the same name.
_SEATED = (
    "SELECT seated.cohort_id AS cohort_id, seat.visitor AS node_id, "
    "json_array(seat.visitor) AS users "
    "FROM seat JOIN seated ON seated.number = seat.cohort "
    "WHERE seat.visitor IS NOT NULL"
)
_INVITED = "SELECT cohort_id, node_id, users FROM invitation "
INVITATIONS = f"{_INVITED} UNION ALL {_SEATED}"
USED = (
    f"{_INVITED} WHERE (cohort_id, node_id) NOT IN "  # noqa: S608 (our own words)
    f"(SELECT cohort_id, node_id FROM returned) UNION ALL {_SEATED}"
)
USED_AFTER = (
    f"SELECT cohort_id, node_id, users FROM ({USED}) AS used "  # noqa: S608 (our own)
    "WHERE cohort_id IN (SELECT cohort_id FROM cohort WHERE round > ?)"
)
# SQLite counts people, so that looking at a run does not make an object of each.
ASKED = (
    "SELECT cohort_id, sum(json_array_length(users)) FROM invitation "
    "WHERE (cohort_id, node_id) NOT IN (SELECT cohort_id, node_id FROM returned) "
    "GROUP BY cohort_id UNION ALL "
    "SELECT seated.cohort_id, count(seat.visitor) FROM seat "
    "JOIN seated ON seated.number = seat.cohort GROUP BY seated.cohort_id"
)
PARTICIPATIONS = (
    "SELECT times, count(*) FROM ("
    "SELECT count(*) AS times FROM invitation, json_each(users) "
    "WHERE (cohort_id, node_id) NOT IN (SELECT cohort_id, node_id FROM returned) "
    "GROUP BY node_id, value UNION ALL "
    "SELECT count(*) AS times FROM seat WHERE visitor IS NOT NULL GROUP BY visitor"
    ") AS asked GROUP BY times"
)
SIZES = "SELECT cohort_id, node_id, json_array_length(users) FROM invitation"

# --- the chain over the journal ------------------------------------------------

ADD_ENTRY = "INSERT INTO entry VALUES (?, ?, ?, ?, ?, ?)"
ENTRIES = "SELECT number, at, kind, subject, digest, link FROM entry ORDER BY number"
LAST_ENTRY = (
    "SELECT number, at, kind, subject, digest, link FROM entry "
    "ORDER BY number DESC LIMIT 1"
)
# Entries after the last round that change what was spent.
COUNT_ASKED_SINCE = (
    "SELECT count(*) FROM entry WHERE kind IN "
    "('invited', 'returned', 'dealt', 'opened', 'closed') "
    "AND number > (SELECT max(number) FROM entry WHERE kind = 'round')"
)

_BLAME = "SELECT node_id, kind, word FROM blame WHERE cohort_id = ? ORDER BY node_id"

# The rows that each kind of entry commits to; `?` is its subject. What a later step
# changes in a row belongs to the entry of that step.
ENTRY_ROWS: Mapping[str, Sequence[str]] = {
    FOUNDED: ("SELECT key, value FROM meta WHERE ? = '' ORDER BY key",),
    INVITED: (
        "SELECT round, batch, arm, attempt, size, hex(spec), draw FROM cohort "
        "WHERE cohort_id = ?",
        "SELECT node_id, users FROM invitation WHERE cohort_id = ? ORDER BY node_id",
    ),
    VOID: ("SELECT state, reason, losses FROM cohort WHERE cohort_id = ?", _BLAME),
    SUMMED: ("SELECT state, result, losses FROM cohort WHERE cohort_id = ?", _BLAME),
    ROUND: (
        "SELECT views, policy_state, spent, finished FROM round "
        "WHERE number = CAST(? AS INTEGER)",
    ),
    MET: (
        "SELECT node_id, users, left_out FROM node "
        "WHERE meeting = CAST(? AS INTEGER) ORDER BY node_id",
    ),
    DEALT: (
        "SELECT nodes, reason, dealers, members, findings FROM dealing "
        "WHERE dealing_id = ?",
    ),
    RETURNED: (
        "SELECT node_id, reason FROM returned WHERE cohort_id = ? ORDER BY node_id",
    ),
    RETIRED: ("SELECT round, reason FROM retired WHERE arm = CAST(? AS INTEGER)",),
    OPENED: (seat_sql.OPENED_ROWS,),
    CLOSED: (seat_sql.CLOSED_ROWS,),
    RESUMED: (),
    WAITING: (),
    PAUSED: (),
    LIMITED: (),
    ARCHIVED: (archive_sql.UNSALTED,),
}

# Many more rows, which are read in parts.
ENTRY_SEATS: Mapping[str, tuple[str, str]] = {
    OPENED: seat_sql.SEATS_OF_DECK,
    CLOSED: seat_sql.SEATS_OF_COHORT,
}

# Subjects that stand in a table, and what is wrong where the chain has none of them.
SUBJECTS = (
    (
        RETURNED,
        "SELECT DISTINCT cohort_id FROM returned",
        "users of cohort {} are returned, the chain does not say so",
    ),
    (MET, "SELECT DISTINCT meeting FROM node", "meeting {} is not in the chain"),
    (DEALT, "SELECT dealing_id FROM dealing", "dealing {} is not in the chain"),
    (ROUND, "SELECT number FROM round", "round {} is not in the chain"),
    (
        RETIRED,
        "SELECT arm FROM retired",
        "arm {} is retired, but the chain does not say so",
    ),
    (OPENED, seat_sql.DECKS, "seats of deck {} are not in the chain"),
    (
        CLOSED,
        seat_sql.CLOSED_COHORTS,
        "seats of cohort {} are closed, but the chain does not say so",
    ),
)

# --- the spool -----------------------------------------------------------------

SPOOL_SCHEMA = """
CREATE TABLE IF NOT EXISTS spooled (
    cohort_id TEXT PRIMARY KEY,
    stage     TEXT NOT NULL,
    snapshot  BLOB,
    outcome   TEXT
) STRICT;
CREATE TABLE IF NOT EXISTS spooled_event (
    cohort_id TEXT NOT NULL REFERENCES spooled ON DELETE CASCADE,
    number    INTEGER NOT NULL,
    party     TEXT NOT NULL,
    lost      TEXT,
    body      BLOB,
    PRIMARY KEY (cohort_id, number)
) STRICT, WITHOUT ROWID;
"""
SPOOLED_COHORTS = "SELECT cohort_id FROM spooled ORDER BY rowid"
SPOOLED_COHORT = "SELECT stage, snapshot, outcome FROM spooled WHERE cohort_id = ?"
SPOOLED_EVENTS = (
    "SELECT number, party, body, lost FROM spooled_event WHERE cohort_id = ? "
    "ORDER BY number"
)
SPOOL_STAGE = (
    "INSERT INTO spooled VALUES (?, ?, ?, NULL) ON CONFLICT (cohort_id) DO UPDATE "
    "SET stage = excluded.stage, snapshot = excluded.snapshot"
)
SPOOL_OUTCOME = (
    "INSERT INTO spooled VALUES (?, 'over', NULL, ?) ON CONFLICT (cohort_id) DO UPDATE "
    "SET stage = 'over', snapshot = NULL, outcome = excluded.outcome"
)
SPOOL_EVENT = "INSERT INTO spooled_event VALUES (?, ?, ?, ?, ?)"
DROP_EVENTS = "DELETE FROM spooled_event WHERE cohort_id = ?"
DROP_COHORT = "DELETE FROM spooled WHERE cohort_id = ?"
