"""Every SQL statement about seats: whoever arrives gets the first that is free.

A *deck* is all seats that are opened at once, in the order in which they are given. A
seat is free, then taken, then answered. When its cohort is closed, a free seat is
unused and a taken one is lost.
"""

from __future__ import annotations

SEAT_SCHEMA = """
CREATE TABLE seated (
    number        INTEGER PRIMARY KEY,
    cohort_id     TEXT NOT NULL UNIQUE REFERENCES cohort,
    deck          INTEGER NOT NULL,
    first_seat    INTEGER NOT NULL,
    arm           INTEGER NOT NULL,
    seats         INTEGER NOT NULL,
    terms         BLOB NOT NULL,
    seats_until   REAL NOT NULL,
    answers_until REAL NOT NULL,
    state         TEXT NOT NULL CHECK (state IN ('open', 'closing', 'closed'))
) STRICT;
CREATE INDEX seated_deck ON seated (deck);
CREATE INDEX seated_open ON seated (deck) WHERE state = 'open';
CREATE TABLE seat (
    number  INTEGER PRIMARY KEY,
    cohort  INTEGER NOT NULL REFERENCES seated,
    state   TEXT NOT NULL
        CHECK (state IN ('free', 'taken', 'answered', 'unused', 'lost')),
    visitor TEXT,
    arrival BLOB,
    CHECK ((visitor IS NULL) = (state IN ('free', 'unused'))),
    CHECK ((visitor IS NULL) = (arrival IS NULL))
) STRICT;
CREATE INDEX seat_state ON seat (state, number, cohort);
CREATE INDEX seat_cohort ON seat (cohort, number);
CREATE UNIQUE INDEX seat_visitor ON seat (visitor, cohort) WHERE visitor IS NOT NULL;
CREATE TABLE contribution (
    seat INTEGER PRIMARY KEY REFERENCES seat,
    body BLOB NOT NULL
) STRICT;
CREATE TABLE unmeasured (
    one    INTEGER PRIMARY KEY CHECK (one = 1),
    arm    INTEGER NOT NULL,
    reason TEXT NOT NULL
) STRICT;
"""

# --- what SQLite needs no statement for: whoever writes has locked the whole file -----

LOCK_VISITORS = "SELECT ?"  # to look them up and to write them down as one
LOCK_SEATS = "SELECT 'all of them'"
AFTER_OPENING = "SELECT 'the planner knows'"

# --- the orchestrator -----------------------------------------------------------

NEXT_NUMBERS = (
    "SELECT (SELECT coalesce(max(deck), 0) + 1 FROM seated), "
    "(SELECT coalesce(max(number), 0) + 1 FROM seated), "
    "(SELECT coalesce(max(number), 0) + 1 FROM seat)"
)
ADD_SEATED = "INSERT INTO seated VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 'open')"
# By the number of the first, and the cohorts as JSON.
ADD_SEATS = (
    "INSERT INTO seat SELECT ? + key, value, 'free', NULL, NULL FROM json_each(?)"
)
STATE_OF_SEATED = "SELECT number, state, deck FROM seated WHERE cohort_id = ?"
BEGIN_CLOSING = "UPDATE seated SET state = 'closing' WHERE number = ?"
END_UNANSWERED = (
    "UPDATE seat SET state = CASE state WHEN 'free' THEN 'unused' ELSE 'lost' END "
    "WHERE cohort = ? AND state IN ('free', 'taken')"
)
END_CLOSING = "UPDATE seated SET state = 'closed' WHERE number = ?"
COUNT_COHORT = "SELECT state, count(*) FROM seat WHERE cohort = ? GROUP BY state"
COUNT_OPEN = (
    "SELECT seated.cohort_id, seat.state, count(*) FROM seat "
    "JOIN seated ON seated.number = seat.cohort "
    "WHERE seat.state IN ('free', 'taken', 'answered') AND seated.state = 'open' "
    "AND seat.number >= (SELECT min(first_seat) FROM seated WHERE state = 'open') "
    "GROUP BY seated.cohort_id, seat.state"
)
OPEN_SEATED = "SELECT cohort_id FROM seated WHERE state = 'open' ORDER BY number"
ANSWERED_SEATS = (
    "SELECT visitor, number FROM seat WHERE cohort = ? AND state = 'answered' "
    "ORDER BY visitor"
)
BODIES = (
    "SELECT seat, body FROM contribution WHERE seat IN (SELECT value FROM json_each(?))"
)
FORGET_BODIES = (
    "DELETE FROM contribution WHERE seat IN (SELECT value FROM json_each(?))"
)
SHOW_UNMEASURED = (
    "INSERT INTO unmeasured VALUES (1, ?, ?) ON CONFLICT (one) DO UPDATE "
    "SET arm = excluded.arm, reason = excluded.reason"
)

# --- whoever reads a run ---------------------------------------------------------

SEATED = (
    "SELECT cohort_id, deck, arm, seats, seats_until, answers_until, "
    "state = 'closed' FROM seated ORDER BY number"
)
COUNT_ALL = (
    "SELECT seated.cohort_id, seat.state, count(*) FROM seat "
    "JOIN seated ON seated.number = seat.cohort GROUP BY seated.cohort_id, seat.state"
)
# What the chain commits to beside the rows of a cohort: the seats, read in parts from
# the first query's lower bound to its upper one.
SEATS_OF_DECK = (
    "SELECT min(first_seat) - 1, min(first_seat) + sum(seats) - 1 FROM seated "
    "WHERE deck = CAST(? AS INTEGER)",
    "SELECT number, cohort FROM seat WHERE ? <> '' AND number > ? AND number <= ? "
    "ORDER BY number LIMIT ?",
)
SEATS_OF_COHORT = (
    "SELECT min(first_seat) - 1, (SELECT max(number) FROM seat) FROM seated "
    "WHERE cohort_id = ?",
    "SELECT number, state, visitor FROM seat "
    "WHERE cohort = (SELECT number FROM seated WHERE cohort_id = ?) "
    "AND number > ? AND number <= ? ORDER BY number LIMIT ?",
)
OPENED_ROWS = (
    "SELECT number, cohort_id, first_seat, arm, seats, hex(terms), seats_until, "
    "answers_until FROM seated WHERE deck = CAST(? AS INTEGER) ORDER BY number"
)
CLOSED_ROWS = "SELECT state FROM seated WHERE cohort_id = ?"
DECK_COHORTS = "SELECT number, cohort_id FROM seated WHERE deck = ?"
SEAT_RECORDS = (
    "SELECT number, cohort, visitor, state = 'answered' FROM seat "
    "WHERE number > ? AND number <= ? ORDER BY number LIMIT ?"
)
DECKS = "SELECT DISTINCT deck FROM seated"
CLOSED_COHORTS = "SELECT cohort_id FROM seated WHERE state = 'closed'"

# --- workers ---------------------------------------------------------------------

IS_ANY_FREE = "SELECT 1 FROM seat WHERE state = 'free' LIMIT 1"
FREE_SEATS = (
    "SELECT number, cohort FROM seat WHERE state = 'free' ORDER BY number LIMIT ?"
)
SEATS_OF = (
    "SELECT seat.visitor, seat.number, seat.cohort, seat.state, seat.arrival, "
    "EXISTS (SELECT 1 FROM seated AS open WHERE open.deck = seated.deck "
    "AND open.state = 'open') "
    "FROM seat JOIN seated ON seated.number = seat.cohort "
    "WHERE seat.visitor IN (SELECT value FROM json_each(?)) ORDER BY seat.number"
)
# The same, about to be changed: PostgreSQL locks these rows until they are.
SEATS_TO_ANSWER = f"{SEATS_OF} /* for update */"
TAKE_SEAT = "UPDATE seat SET state = 'taken', visitor = ?, arrival = ? WHERE number = ?"
ANSWER_SEAT = "UPDATE seat SET state = 'answered' WHERE number = ?"
ADD_CONTRIBUTION = "INSERT INTO contribution VALUES (?, ?)"
BODY = "SELECT body FROM contribution WHERE seat = ?"
UNMEASURED = "SELECT arm, reason FROM unmeasured"
SEATED_BY_NUMBER = (
    "SELECT number, cohort_id, arm, deck, seats_until, answers_until FROM seated "
    "WHERE number > ? ORDER BY number"
)
SEATED_BY_ID = (
    "SELECT cohort_id, arm, seats, terms, seats_until, answers_until FROM seated "
    "WHERE cohort_id = ? AND state = 'open'"
)
