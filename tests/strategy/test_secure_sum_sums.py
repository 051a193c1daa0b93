"""Both back-ends, all parties in one process, nobody lost."""

from __future__ import annotations

import pytest

from protocol.backends import BACKENDS
from protocol.session import SecureSum
from protocol.threat import Threat
from tests.secure_sums import TENTH, Enrolment, cohort_spec, names, open_cohort


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("nodes", [2, 3, 5, 17, 66])
def test_the_sum_is_exact_when_nobody_is_lost(backend: str, nodes: int) -> None:
    parties = names(nodes)
    cohort = open_cohort(cohort_spec(backend, parties), parties)
    outcome = cohort.run()
    assert isinstance(outcome, SecureSum)
    assert outcome.survivors == tuple(parties)
    assert outcome.total == cohort.expected(outcome.survivors)
    assert outcome.users == nodes


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("extra", [0, 100])
def test_enrolled_nodes_sum_against_a_malicious_server(
    backend: str, extra: int
) -> None:
    parties = {"a": 3, "b": 1, "c": 5, "d": 2, "e": 4} | names(extra)
    spec = cohort_spec(
        backend, parties, threat=Threat(TENTH, TENTH, malicious_server=True)
    )
    cohort = open_cohort(spec, parties, enrolment=Enrolment())
    outcome = cohort.run()
    assert isinstance(outcome, SecureSum)
    assert outcome.total == cohort.expected(outcome.survivors)
    assert outcome.users == 15 + extra
