"""Remove from a record who took part, when the run is over.

Every name of a node, a user or a visitor gets a random one in its place, and nobody
keeps which was which. All else stays, so that a run is replayed as before. The entries
of the chain that committed to names lose the salts of their digests, which then tell
nothing; one more entry commits to what stands there now. One transaction does it: a
crash leaves all names or none.
"""

from __future__ import annotations

import json
import secrets
import shutil
from collections import defaultdict
from pathlib import Path

from wallflower.protocol.errors import UnavailableError
from wallflower.strategy.store import archive_sql as sql
from wallflower.strategy.store import chain
from wallflower.strategy.store.database import SqliteDatabase, Transaction
from wallflower.strategy.store.entries import ARCHIVED, NAMING
from wallflower.strategy.store.journal import Journal

# What a run leaves beside its record: ledgers, keys, spools, logs, requests, pages.
_BESIDE = (
    "spool.sqlite*",
    "events.jsonl",
    "ledger.sqlite*",
    "ledger.counter*",
    "nodes",
    "flower",
    "flower.log",
    "failure.json",
    "run-token.secret",
    "simulated-enrolment.key",
    "shuffler",
    "shuffler.enrolment",
    "pause",
    "retire-*",
    "report.html",
)
_TOKEN_BYTES = 8


class _Names(defaultdict[object, str]):
    """A random name for every name, the same wherever it stands."""

    def __init__(self) -> None:
        # No certificate allows a name that begins like this.
        super().__init__(lambda: f"~{secrets.token_hex(_TOKEN_BYTES)}")


def archive(journal: Journal) -> str:
    """Remove all names and everything beside the record; return the new head.

    The journal is open for writing, its run is over and its record holds. Called again,
    it does what a crash left undone.
    """
    database = journal.database
    if not isinstance(database, SqliteDatabase):
        raise UnavailableError(
            f"{journal.path} is a PostgreSQL database, whose logs and backups keep "
            "what was removed; only a run whose record is a file can be archived"
        )
    if not journal.is_archived:
        with database.transaction() as connection:
            _rename(connection)
            _remove_salts(connection)
            chain.append(connection, ARCHIVED)
    database.compact()
    for pattern in _BESIDE:
        for path in journal.run_dir.glob(pattern):
            _remove(path)
    return journal.head


def _rename(connection: Transaction) -> None:
    nodes, people = _Names(), _Names()

    def named(table: str, row: tuple[object, ...]) -> tuple[object, ...]:
        first, node_id, *rest = row
        if table == "invitation":
            users = [people[node_id, user] for user in json.loads(str(rest[0]))]
            rest = [json.dumps(users)]
        # Blame without a party is the server's own.
        return first, nodes[node_id] if node_id else node_id, *rest

    for table, read, write in sql.REWRITTEN:
        rows = connection.execute(read).fetchall()
        connection.execute(f"DELETE FROM {table}")  # noqa: S608 (a name of ours)
        connection.executemany(write, sorted(named(table, row) for row in rows))
    for cohort_id, text in connection.execute(sql.SUMS).fetchall():
        result = json.loads(text)
        result["nodes"] = sorted(nodes[node] for node in result["nodes"])
        connection.execute(sql.SET_SUM, (json.dumps(result), cohort_id))
    for dealing_id, dealers, members, findings in connection.execute(
        sql.DEALINGS
    ).fetchall():
        texts = [
            json.dumps([nodes[node] for node in json.loads(text)])
            for text in (dealers, members)
        ]
        found = [
            (nodes[party] if party else party, *rest)
            for party, *rest in json.loads(findings)
        ]
        connection.execute(sql.SET_DEALING, (*texts, json.dumps(found), dealing_id))
    visitors = connection.execute(sql.VISITORS).fetchall()
    renamed = [(people[visitor], b"", number) for number, visitor in visitors]
    connection.executemany(sql.SET_VISITOR, renamed)
    connection.execute(sql.FORGET_BODIES)


def _remove_salts(connection: Transaction) -> None:
    connection.executemany(sql.FORGET_SALTS, [(kind,) for kind in NAMING])


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
