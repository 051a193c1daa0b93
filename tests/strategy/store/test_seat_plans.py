"""A run with a million seats costs as much a call as one with ten: SQLite's plans."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.support.stored_seats import FIRST, Server
from wallflower.strategy.store import seat_sql


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("plans") / "run")
    yield server
    server.close()


PER_CALL = {
    "IS_ANY_FREE": (),
    "FREE_SEATS": (5,),
    "SEATS_OF": ('["v", "w"]',),
    "TAKE_SEAT": ("v", FIRST, 1),
    "ANSWER_SEAT": (1,),
    "SEATED_BY_NUMBER": (1,),
    "SEATED_BY_ID": ("c",),
    "COUNT_OPEN": (),
    "COUNT_COHORT": (1,),
    "END_UNANSWERED": (1,),
    "ANSWERED_SEATS": (1,),
    "BODIES": ("[1]",),
    "BODY": (1,),
    "SEAT_RECORDS": (0, 5, 5),
    "FORGET_BODIES": ("[1]",),
    "NEXT_NUMBERS": (),
}


@pytest.mark.parametrize("name", PER_CALL)
def test_no_statement_of_a_call_walks_through_all_seats(
    name: str, server: Server
) -> None:
    statement, values = getattr(seat_sql, name), PER_CALL[name]
    plan = server.journal.database.rows(f"EXPLAIN QUERY PLAN {statement}", *values)
    walks = [what for *_, what in plan if re.match(r"SCAN (seat|contribution)\b", what)]
    assert walks == []
