"""How few nodes and how many users a cohort may have."""

from __future__ import annotations

from typing import Any

import pytest

from tests.strategy.secure_sum.test_server import EVERY_STAGE, fresh
from tests.support.secure_sums import NODE_BACKENDS as BACKENDS
from tests.support.secure_sums import asks, cohort_spec, forged, names, open_cohort
from wallflower.protocol.errors import InputError, ProtocolError
from wallflower.protocol.secure_sum.session import Void
from wallflower.protocol.wire import secure_sum_pb2 as wire
from wallflower.protocol.wire.sealed_pb2 import SealAnswer
from wallflower.strategy.secure_sum import server_session


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_cohort_of_one_node_is_refused_however_many_users_it_has(
    backend: str,
) -> None:
    parties = {"hospital": 500}
    spec = cohort_spec(backend, parties, quorum=2)
    outcome = server_session(spec, parties).start()
    assert isinstance(outcome, Void)
    assert outcome.code == "cohort-of-one"


@pytest.mark.parametrize(("backend", "stage"), EVERY_STAGE)
@pytest.mark.parametrize("nodes", [2, 3])
def test_two_and_three_nodes_tolerate_no_dropout(
    backend: str, stage: str, nodes: int
) -> None:
    cohort = fresh(backend, nodes)
    gone = "node-00001"
    reached = False

    def gate(current: str, party: str) -> bool:
        nonlocal reached
        reached = reached or current == stage
        return not (reached and party == gone)

    outcome = cohort.run(up=gate)
    assert isinstance(outcome, Void)


def test_an_infeasible_threat_voids_with_the_nearest_feasible_one() -> None:
    parties = names(16)
    spec = cohort_spec("secagg-plus", parties)
    spec.threat.corrupt.numerator, spec.threat.corrupt.denominator = 9, 10
    outcome = server_session(spec, parties).start()
    assert isinstance(outcome, Void)
    assert outcome.code == "threat-infeasible"
    assert "nearest feasible" in outcome.detail


def test_an_unknown_back_end_is_refused() -> None:
    spec = cohort_spec("sealed", names(4))
    spec.backend = "seald"
    with pytest.raises(InputError, match='did you mean "sealed"'):
        server_session(spec, names(4))


@pytest.mark.parametrize(
    ("backend", "stage", "kind"),
    [
        ("sealed", "seal", SealAnswer),
        ("secagg-plus", "share", wire.ShareAnswer),
    ],
)
def test_a_node_that_claims_more_users_than_were_invited_is_out(
    backend: str, stage: str, kind: Any
) -> None:
    parties = names(8)
    cohort = open_cohort(cohort_spec(backend, parties), parties)
    body = asks(cohort, stage).messages["node-00000"]

    def claim(answer: Any) -> None:
        answer.users = 2

    answer = forged(cohort.answer("node-00000", body), kind, claim)
    with pytest.raises(ProtocolError, match="2 users"):
        cohort.server.receive("node-00000", answer)
