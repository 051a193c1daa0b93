"""Whatever happens to messages and machines: the exact sum over the reported survivors,
or no sum and a reason; nobody counted twice; an end after finitely many stages.

`make soak-machines` runs 10,000 more of every back-end.
"""

from __future__ import annotations

import pytest

from tests.support.secure_sum_faults import run_schedules

# The same lines again and again, which others run too: not traced, twice as fast.
pytestmark = pytest.mark.no_cover

KINDS = {
    "request-lost",
    "request-duplicated",
    "request-flipped",
    "client-crashed",
    "client-restarted",
    "answer-lost",
    "answer-duplicated",
    "answer-flipped",
    "answer-replaced",
    "server-killed",
}


@pytest.mark.parametrize("first", range(0, 320, 80))
def test_seeded_faults_never_give_a_wrong_sum(first: int) -> None:
    tally = run_schedules(range(first, first + 80))
    # The faults were there, and did not stop everything.
    assert {kind for kind in KINDS if tally.injected[kind]} == KINDS
    assert tally.sums >= 20
    assert tally.partial >= 3
    assert tally.voids.total() >= 10
