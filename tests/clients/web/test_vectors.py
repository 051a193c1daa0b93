"""The golden vectors that are kept with the code: Python still makes the same of them.

clients/web/tests does the same in TypeScript, and many more (`make test-web`).
"""

from __future__ import annotations

import json
import random

import pytest

from tests.support.web.drawn_seats import draw_seat
from tests.support.web.vectors import COMPUTE, SAMPLE, wrong_cases
from wallflower.protocol.refusals import RefusalCode


@pytest.mark.parametrize("kind", sorted(COMPUTE))
def test_python_makes_what_the_vectors_hold(kind: str) -> None:
    count, wrong = wrong_cases(SAMPLE / f"{kind}.json")
    assert count > 0
    assert wrong == []


def codes(kind: str) -> set[str]:
    cases = json.loads((SAMPLE / f"{kind}.json").read_text())
    return {case["out"].get("code", "accepted") for case in cases}


# What a node of one person who arrives can refuse nothing by, and why not.
UNREACHABLE = {
    "cohort-already-answered": "members",
    "cohort-changed": "one stage",
    "committee-size": "members",
    "floor-not-met": "shuffling",
    "graph-degree": "secagg-plus",
    "ledger-rolled-back": "the ledger is the browser's",
    "ledger-unavailable": "tests/browser/web/test_ledger.py",
    "no-home": "homes",
    "no-share": "members",
    "node-busy": "Flower",
    "not-possible": "a source of outcomes; tests/browser/web/test_lies.py",
    "quorum-not-met": "members",
    "reward-source-down": "the page is the source",
    "run-connected": "Flower",
    "set-too-small": "members",
    "shuffler-not-known": "shuffling",
    "too-few-neighbours": "secagg-plus",
    "too-many-cohorts": "one cohort",
    "too-many-users": "one person",
    "unknown-task": "a seat asks for one stage: wrong-context",
    "unusable-key": "secagg-plus",
    "user-unknown": "a seat is for one person: wrong-context",
}


def test_the_shared_table_holds_every_code_by_which_a_seat_can_be_refused() -> None:
    found = codes("seat") | codes("answer") | codes("reply")
    assert found.isdisjoint(UNREACHABLE)
    assert found | set(UNREACHABLE) == {code.value for code in RefusalCode} | {
        "accepted"
    }


def test_the_shared_table_holds_every_lie_that_is_drawn() -> None:
    cases = json.loads((SAMPLE / "seat.json").read_text())
    kept = {case["in"]["why"] for case in cases}
    drawn = {draw_seat(random.Random(seed))["why"] for seed in range(400)}
    assert drawn <= kept
