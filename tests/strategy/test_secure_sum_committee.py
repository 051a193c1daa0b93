"""`committee`, all parties in one process."""

from __future__ import annotations

import pytest

from protocol.session import SecureSum
from protocol.threat import Threat
from tests.secure_sums import TENTH, Enrolment, cohort_spec, names, open_cohort


@pytest.mark.parametrize("nodes", [2, 3, 5, 17, 66])
def test_the_sum_is_exact_when_nobody_is_lost(nodes: int) -> None:
    parties = names(nodes)
    cohort = open_cohort(cohort_spec("committee", parties), parties)
    outcome = cohort.run()
    assert isinstance(outcome, SecureSum)
    assert outcome.survivors == tuple(parties)
    assert outcome.total == cohort.expected(outcome.survivors)
    assert outcome.users == nodes


def test_enrolled_nodes_sum_against_a_malicious_server() -> None:
    parties = {"a": 3, "b": 1, "c": 5, "d": 2, "e": 4}
    spec = cohort_spec(
        "committee", parties, threat=Threat(TENTH, TENTH, malicious_server=True)
    )
    cohort = open_cohort(spec, parties, enrolment=Enrolment())
    outcome = cohort.run()
    assert isinstance(outcome, SecureSum)
    assert outcome.total == cohort.expected(outcome.survivors)
    assert outcome.users == 15
