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
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from wallflower.protocol.errors import InputError
from wallflower.strategy.store import archive_sql, sql
from wallflower.strategy.store.database import Transaction
from wallflower.strategy.store.entries import ARCHIVED, INVITED, NAMING

LEAST_HEAD = 16  # hexadecimal digits that name a head beyond doubt
_LABEL = "wallflower-journal/4"
_FIRST = "0" * 64
_SEATS_AT_ONCE = 10_000
_SALT_BYTES = 16

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
    database: Transaction,
    kind: str,
    subjects: Sequence[str] = ("",),
    seats: Mapping[str, str] | None = None,
) -> str:
    """Add an entry for each subject whose rows were just written; give the head.

    `seats` are digests that `digest_seats` gave for some of the subjects.
    """

    def rows(query: str, *values: object) -> list[Any]:
        return database.execute(query, values).fetchall()

    last = rows(sql.LAST_ENTRY)
    number, *_, link = last[0] if last else (0, _FIRST)
    for subject in subjects:
        number += 1
        at = time.time()
        # Of entries whose names an archive removes, the digest must not tell them.
        salt = secrets.token_hex(_SALT_BYTES)
        database.execute(archive_sql.ADD_SALT, (number, salt))
        digest = _digest(rows, kind, subject, salt, (seats or {}).get(subject))
        link = _link(link, number, at, kind, subject, digest)
        database.execute(sql.ADD_ENTRY, (number, at, kind, subject, digest, link))
    return str(link)


def entries(rows: Rows) -> list[Entry]:
    """Read the whole chain."""
    return [Entry(*row) for row in rows(sql.ENTRIES)]


def breaks(rows: Rows) -> Iterator[str]:
    """Say where the record is not what its chain says; nothing when it is whole."""
    link, ends = _FIRST, set[tuple[str, str]]()
    salts = dict(rows(archive_sql.SALTS))
    archived = bool(rows(archive_sql.IS_ARCHIVED)[0][0])
    for number, entry in enumerate(entries(rows), start=1):
        what = f"entry {entry.number} ({entry.kind} {entry.subject})".replace(" )", ")")
        if entry.number != number:
            yield f"entry {number} is missing"
            return
        if entry.kind not in sql.ENTRY_ROWS:
            yield f"{what} is of no known kind"
            continue
        salt = salts.get(entry.number)
        # Where an archive removed the salt, its own entry commits to what is left.
        unsalted = salt is None and archived and entry.kind in NAMING
        if not unsalted and entry.digest != _digest(
            rows, entry.kind, entry.subject, salt or ""
        ):
            yield f"{what}: its rows were changed after they were written"
        expected = link, number, entry.at, entry.kind, entry.subject, entry.digest
        if entry.link != _link(*expected):
            yield f"{what}: it or its time was changed, or one before it"
        link = entry.link
        ends.add((entry.kind, entry.subject))
    yield from _unsaid(rows, ends)


def _unsaid(rows: Rows, ends: Set[tuple[str, str]]) -> Iterator[str]:
    """Say what stands in the tables and not in the chain."""
    for cohort_id, state in rows(sql.COHORT_STATES):
        for kind in {INVITED, state}:
            if (kind, cohort_id) not in ends:
                yield f"cohort {cohort_id} is {kind}, but the chain does not say so"
    for kind, subjects, unsaid in sql.SUBJECTS:
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


def check_head(text: str) -> None:
    """Refuse what cannot be a head before anything is compared with it."""
    if len(text) < LEAST_HEAD or set(text.lower()) - set("0123456789abcdef"):
        raise InputError("head", f'"{text}"', f"{LEAST_HEAD} to 64 hex digits")


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


def _digest(
    rows: Rows, kind: str, subject: str, salt: str, seats: str | None = None
) -> str:
    content = [[salt], *(rows(query, subject) for query in sql.ENTRY_ROWS[kind])]
    if kind in sql.ENTRY_SEATS:
        content.append([seats or digest_seats(rows, kind, subject)])
    if kind == ARCHIVED:
        unsalted = content.pop()
        content += [[_digest(rows, kind, subject, "")] for _, kind, subject in unsalted]
    return _hash(content)


def count_unsalted(rows: Rows) -> int:
    """Return how many entries no longer commit to the rows that they once had."""
    return len(rows(archive_sql.UNSALTED, ""))


def digest_seats(rows: Rows, kind: str, subject: str) -> str:
    """Return a digest of all seats that an entry commits to, read in parts."""
    bounds, query = sql.ENTRY_SEATS[kind]
    [(after, last)] = rows(bounds, subject)
    found = hashlib.sha256()
    while part := rows(query, subject, after or 0, int(last or 0), _SEATS_AT_ONCE):
        found.update(_hash(part).encode())
        after = part[-1][0]
    return found.hexdigest()


def _link(before: str, *facts: object) -> str:
    return _hash([_LABEL, before, *facts])


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
