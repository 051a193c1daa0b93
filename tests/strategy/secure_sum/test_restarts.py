"""Killed and restored anywhere, with nothing else wrong: the same sum, nobody twice."""

from __future__ import annotations

import pytest

from tests.support.client_sessions import client_session
from tests.support.client_sessions import restore_session as restore_client
from tests.support.secure_sums import NODE_BACKENDS as BACKENDS
from tests.support.secure_sums import (
    TENTH,
    Cohort,
    Enrolment,
    cohort_spec,
    names,
    open_cohort,
)
from wallflower.clients.secure_sum.keyring import ClientKeyring
from wallflower.clients.secure_sum.limits import ClientLimits
from wallflower.protocol.errors import ReplayedMessageError, WrongContextError
from wallflower.protocol.secure_sum.session import Ask, SecureSum
from wallflower.protocol.secure_sum.threat import Threat
from wallflower.strategy.secure_sum import restore_session

ENROLMENT = Enrolment()
CASES = [
    ("secagg-plus", False),
    ("secagg-plus", True),
    ("sealed", False),
    ("sealed", True),
]


def fresh(backend: str, lying: bool) -> Cohort:
    parties = dict(zip(names(7), (3, 1, 4, 1, 5, 9, 2), strict=True))
    threat = Threat(TENTH, TENTH, malicious_server=lying)
    spec = cohort_spec(backend, parties, threat=threat)
    return open_cohort(spec, parties, enrolment=ENROLMENT if lying else None)


def check(cohort: Cohort, outcome: object) -> None:
    assert isinstance(outcome, SecureSum), outcome
    assert outcome.survivors == tuple(cohort.parties)
    assert outcome.total == cohort.expected(outcome.survivors)
    assert outcome.users == 25


@pytest.mark.parametrize(("backend", "lying"), CASES)
def test_a_server_restored_at_every_stage_and_after_every_answer_sums_the_same(
    backend: str, lying: bool
) -> None:
    cohort = fresh(backend, lying)
    trust = ENROLMENT.trust if lying else None
    step = cohort.server.start()
    while isinstance(step, Ask):
        kept = cohort.server.snapshot()
        answers: list[tuple[str, bytes]] = []
        for party, body in step.messages.items():
            # Killed: back from the snapshot, with what was spooled since.
            cohort.server = restore_session(kept, trust=trust)
            for earlier, answer in answers:
                cohort.server.receive(earlier, answer)
            again = cohort.server.start()
            assert isinstance(again, Ask)
            assert again.stage == step.stage
            unheard = {p: b for p, b in step.messages.items() if p not in dict(answers)}
            assert again.messages == unheard
            answer = cohort.answer(party, body)
            cohort.server.receive(party, answer)
            answers.append((party, answer))
            with pytest.raises(ReplayedMessageError):
                cohort.server.receive(party, answer)
        assert cohort.server.stage_complete
        step = cohort.server.advance()
    check(cohort, step)


@pytest.mark.parametrize(("backend", "lying"), CASES)
def test_a_server_restored_from_a_snapshot_within_a_stage_sums_the_same(
    backend: str, lying: bool
) -> None:
    cohort = fresh(backend, lying)
    trust = ENROLMENT.trust if lying else None
    step = cohort.server.start()
    while isinstance(step, Ask):
        for party, body in step.messages.items():
            cohort.server.receive(party, cohort.answer(party, body))
            cohort.server = restore_session(cohort.server.snapshot(), trust=trust)
        step = cohort.server.advance()
    check(cohort, step)


@pytest.mark.parametrize(("backend", "lying"), CASES)
def test_clients_that_move_to_a_new_process_after_every_stage_sum_the_same(
    backend: str, lying: bool
) -> None:
    cohort = fresh(backend, lying)
    step = cohort.server.start()
    while isinstance(step, Ask):
        for party, body in step.messages.items():
            answer = cohort.answer(party, body)
            cohort.server.receive(party, answer)
            cohort.clients[party] = restore_client(
                cohort.clients[party].snapshot(),
                ENROLMENT.identity(party) if lying else None,
                ENROLMENT.trust if lying else None,
                ClientLimits(),
                # Shares of the run's key lie in the node's own store.
                ClientKeyring("run-1", key_shares=cohort.keyrings[party].key_shares),
            )
            # What was answered before the move is answered alike after it.
            assert cohort.clients[party].inspect(body).answer().body == answer
        step = cohort.server.advance()
    check(cohort, step)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_restored_client_refuses_a_second_different_request(backend: str) -> None:
    cohort = fresh(backend, False)
    first = cohort.server.start()
    assert isinstance(first, Ask)
    cohort.answer("node-00000", first.messages["node-00000"])
    other = fresh(backend, False)
    other.spec.quorum = 24
    changed = open_cohort(other.spec, other.parties).server.start()
    assert isinstance(changed, Ask)
    moved = restore_client(
        cohort.clients["node-00000"].snapshot(),
        None,
        None,
        ClientLimits(),
        ClientKeyring("run-1"),
    )
    with pytest.raises((ReplayedMessageError, WrongContextError)):
        moved.inspect(changed.messages["node-00000"]).answer()


@pytest.mark.parametrize("lying", [False, True])
def test_a_node_that_advertised_anew_is_left_out_and_the_others_are_summed(
    lying: bool,
) -> None:
    """Masks with keys that the server does not know would make the whole sum void."""
    cohort = fresh("secagg-plus", lying)
    step = cohort.server.start()
    assert isinstance(step, Ask)
    for party, body in step.messages.items():
        cohort.server.receive(party, cohort.answer(party, body))
    ended = next(iter(cohort.parties))
    again = client_session(
        cohort.spec,
        ended,
        ENROLMENT.identity(ended) if lying else None,
        ENROLMENT.trust if lying else None,
        ClientLimits(),
        ClientKeyring(cohort.spec.run_id),
    )
    again.inspect(
        step.messages[ended]
    ).answer()  # the same request reaches its next process
    cohort.clients[ended] = again
    step = cohort.server.advance()
    while isinstance(step, Ask):
        step = cohort.step(step, lambda s, p: True, lambda s, p: True)
    assert isinstance(step, SecureSum), step
    assert set(step.survivors) == cohort.parties.keys() - {ended}
    assert step.total == cohort.expected(step.survivors)
    assert cohort.refusals == {ended: "wrong-context"}
