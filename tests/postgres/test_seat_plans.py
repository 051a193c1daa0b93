"""A call costs as much with a million seats as with ten: PostgreSQL's plans."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.support.postgres_server import PostgresServer
from tests.support.stored_seats import FIRST, Server
from wallflower.strategy.store import seat_sql
from wallflower.strategy.store.postgres.statements import translate
from wallflower.strategy.store.seat_store import SeatStore

WALK = re.compile(r"Seq Scan on (seat|contribution)\s")
PER_CALL = {
    "IS_ANY_FREE": (),
    "FREE_SEATS": (5,),
    "SEATS_OF": ('["v", "w"]',),
    "SEATS_TO_ANSWER": ('["v", "w"]',),
    "TAKE_SEAT": ("v", FIRST, 1),
    "ANSWER_SEAT": (1,),
    "BODY": (1,),
}


@pytest.fixture(scope="module")
def worker(
    tmp_path_factory: pytest.TempPathFactory, postgres: PostgresServer
) -> Iterator[SeatStore]:
    server = Server(tmp_path_factory.mktemp("plans") / "run", postgres.url)
    server.open_round(seats=3)
    yield server.worker()
    server.close()


@pytest.mark.parametrize("name", PER_CALL)
def test_no_statement_of_a_call_walks_through_all_seats(
    name: str, worker: SeatStore
) -> None:
    statement = getattr(seat_sql, name)
    explained = worker.database.rows(f"EXPLAIN {_whole(statement)}", *PER_CALL[name])
    walks = [line for (line,) in explained if WALK.search(line)]
    assert walks == []


def _whole(statement: str) -> str:
    """Return a statement as PostgreSQL runs it, with our own marks for values."""
    return translate(statement).replace("%s", "?")
