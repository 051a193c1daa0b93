"""The chain over a run's record: every entry commits to all that came before it.

Whatever is written to the journal (its foundation, an invited cohort with its users, a
cohort's end, a finished round, a restart) adds one entry with the time, a digest of the
rows, and the SHA-256 of all that and of the entry before: the *link*. The last link is
the run's *head*. Who keeps a head elsewhere (it is printed with the result and stands
in the events) can tell later that nothing up to it was changed, moved or taken away; a
tail that was cut off shows by a head that the chain does not have.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from typing import Any

SCHEMA = """
CREATE TABLE entry (
    number  INTEGER PRIMARY KEY,
    at      REAL NOT NULL,
    kind    TEXT NOT NULL,
    subject TEXT NOT NULL,
    digest  TEXT NOT NULL,
    link    TEXT NOT NULL UNIQUE
) STRICT
"""
FOUNDED, INVITED, VOID, SUMMED, ROUND = "founded", "invited", "void", "summed", "round"
DEALT = "dealt"  # how a key for sealed sums was made, or why not
MET = "met"  # nodes that said who lives there, and how many cannot be asked
RETURNED = "returned"  # users of a cohort whose node refused before anybody saw the arm
RETIRED = "retired"  # an arm, by hand; its subject is the arm
# The subject of these is the round under way; they have no rows.
RESUMED, WAITING, PAUSED = "resumed", "waiting", "paused"
LIMITED = "limited"  # its subject has the round and the users it may ask, no rows
LEAST_HEAD = 16  # hexadecimal digits that name a head beyond doubt
_LABEL = "wallflower-journal/3"
_FIRST = "0" * 64

_BLAME = "SELECT node_id, kind, word FROM blame WHERE cohort_id = ? ORDER BY node_id"

# The rows that each kind of entry commits to; `?` is its subject. What a later step
# changes in a row belongs to the entry of that step.
_ROWS: dict[str, Sequence[str]] = {
    FOUNDED: ("SELECT key, value FROM meta WHERE ? = '' ORDER BY key",),
    INVITED: (
        "SELECT round, batch, arm, attempt, size, hex(spec), draw FROM cohort "
        "WHERE cohort_id = ?",
        "SELECT node_id, users FROM invitation WHERE cohort_id = ? ORDER BY node_id",
    ),
    VOID: (
        "SELECT state, reason, losses FROM cohort WHERE cohort_id = ?",
        _BLAME,
    ),
    SUMMED: (
        "SELECT state, result, losses FROM cohort WHERE cohort_id = ?",
        _BLAME,
    ),
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
    RESUMED: (),
    WAITING: (),
    PAUSED: (),
    LIMITED: (),
}

# Subjects that stand in a table, and what is wrong where the chain has none of them.
_SUBJECTS = (
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
)

Rows = Callable[..., list[Any]]  # a query and its values → rows


@dataclass(frozen=True, slots=True)
class Entry:
    """One link of the chain: what was written about what, and when (Unix seconds)."""

    number: int
    at: float
    kind: str
    subject: str
    digest: str
    link: str


def append(
    database: sqlite3.Connection, kind: str, subjects: Sequence[str] = ("",)
) -> str:
    """Add an entry for each subject whose rows were just written; give the head."""

    def rows(query: str, *values: object) -> list[Any]:
        return database.execute(query, values).fetchall()

    last = rows("SELECT number, link FROM entry ORDER BY number DESC LIMIT 1")
    number, link = last[0] if last else (0, _FIRST)
    for subject in subjects:
        number += 1
        at = time.time()
        digest = _digest(rows, kind, subject)
        link = _link(link, number, at, kind=kind, subject=subject, digest=digest)
        database.execute(
            "INSERT INTO entry VALUES (?, ?, ?, ?, ?, ?)",
            (number, at, kind, subject, digest, link),
        )
    return str(link)


def entries(rows: Rows) -> list[Entry]:
    """Read the whole chain."""
    return [Entry(*row) for row in rows("SELECT * FROM entry ORDER BY number")]


def breaks(rows: Rows) -> Iterator[str]:
    """Say where the record is not what its chain says; nothing when it is whole."""
    link, ends = _FIRST, set[tuple[str, str]]()
    for number, entry in enumerate(entries(rows), start=1):
        what = f"entry {entry.number} ({entry.kind} {entry.subject})".replace(" )", ")")
        if entry.number != number:
            yield f"entry {number} is missing"
            return
        if entry.kind not in _ROWS:
            yield f"{what} is of no known kind"
            continue
        if entry.digest != _digest(rows, entry.kind, entry.subject):
            yield f"{what}: its rows were changed after they were written"
        expected = _link(
            link,
            number,
            entry.at,
            kind=entry.kind,
            subject=entry.subject,
            digest=entry.digest,
        )
        if entry.link != expected:
            yield f"{what}: it or its time was changed, or one before it"
        link = entry.link
        ends.add((entry.kind, entry.subject))
    yield from _unsaid(rows, ends)


def _unsaid(rows: Rows, ends: Set[tuple[str, str]]) -> Iterator[str]:
    """Say what stands in the tables and not in the chain."""
    for cohort_id, state in rows("SELECT cohort_id, state FROM cohort"):
        for kind in {INVITED, state}:
            if (kind, cohort_id) not in ends:
                yield f"cohort {cohort_id} is {kind}, but the chain does not say so"
    for kind, subjects, unsaid in _SUBJECTS:
        for (subject,) in rows(subjects):
            if (kind, str(subject)) not in ends:
                yield unsaid.format(subject)


def limit_subject(number: int, users: int) -> str:
    """Write the subject of a limit: the round and the users it may ask."""
    return f"{number}:{users}"


def limit_of(subject: str) -> tuple[int, int]:
    """Read what `limit_subject` wrote."""
    number, users = map(int, subject.split(":"))
    return number, users


def place_of(chain: Sequence[Entry], head: str) -> Entry | None:
    """Find the entry that a head names, whole or by its first digits."""
    wanted = head.strip().lower()
    if len(wanted) < LEAST_HEAD:
        return None
    return next((entry for entry in chain if str(entry.link).startswith(wanted)), None)


def unknown_heads(chain: Sequence[Entry], heads: Iterable[str]) -> list[str]:
    """Return the heads that name no entry, each once, in their order."""
    links = {entry.link for entry in chain}
    return [
        head
        for head in dict.fromkeys(heads)
        if head not in links and place_of(chain, head) is None
    ]


def _digest(rows: Rows, kind: str, subject: str) -> str:
    return _hash([rows(query, subject) for query in _ROWS[kind]])


def _link(
    before: str, number: int, at: float, kind: str, subject: str, digest: str
) -> str:
    return _hash([_LABEL, before, number, at, kind, subject, digest])


def _hash(content: Sequence[object]) -> str:
    text = json.dumps(content, separators=(",", ":"), default=_foreign)
    return hashlib.sha256(text.encode()).hexdigest()


def _foreign(value: object) -> object:
    """Write bytes, which damage puts in the place of text, unlike any text."""
    return {"bytes": bytes.hex(value)} if isinstance(value, bytes) else repr(value)


_CODE_DIGITS = 20  # hexadecimal: 2⁻⁸⁰ for every guess
_LONGEST_ID = 200


def sign_cohort_id(key: bytes, name: str) -> str:
    """Return the id of a cohort that is about to be written down and invited."""
    return f"{name}-{_code(key, name)}"


def is_own_id(key: bytes, cohort_id: str) -> bool:
    """Say whether an id was made with this key."""
    name, _, code = cohort_id[:_LONGEST_ID].rpartition("-")
    return hmac.compare_digest(_code(key, name).encode(), code.encode())


def _code(key: bytes, name: str) -> str:
    made = hmac.digest(key, name.encode(), hashlib.sha256)
    return made.hex()[:_CODE_DIGITS]
