"""What a client refuses, whoever asks (rule 2 of docs/secure-sums.md)."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from tests.support.lying_server import FIRST, LYING, VALUE, fresh, refusal
from tests.support.secure_sums import NODE_BACKENDS as BACKENDS
from tests.support.secure_sums import (
    Enrolment,
    asks,
    cohort_spec,
    forged,
    open_cohort,
)
from wallflower.clients.secure_sum.keyring import ClientKeyring
from wallflower.clients.secure_sum.limits import ClientLimits
from wallflower.protocol.errors import (
    ProtocolError,
    RefusalError,
    ReplayedMessageError,
)
from wallflower.protocol.secure_sum.context import unwrap, wrap
from wallflower.protocol.secure_sum.session import SecureSum, Void
from wallflower.protocol.wire import sealed_pb2
from wallflower.protocol.wire import secure_sum_pb2 as wire

# -- rule 2: minima ----------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("limits", "code"),
    [
        (ClientLimits(minimum_parties=7), "cohort-too-small"),
        (ClientLimits(minimum_corrupt=Fraction(1, 5)), "threat-too-weak"),
        (ClientLimits(require_malicious=True), "threat-too-weak"),
    ],
)
def test_a_cohort_below_a_nodes_minimum_is_refused(
    backend: str, limits: ClientLimits, code: str
) -> None:
    cohort = fresh(backend, quorum=4, limits=limits)
    ask = asks(cohort, FIRST[backend])
    error = refusal(cohort, "node-00000", ask.messages["node-00000"])
    assert isinstance(error, RefusalError)
    assert error.code == code


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_quorum_of_one_user_is_refused(backend: str) -> None:
    cohort = fresh(backend, quorum=1)
    ask = asks(cohort, FIRST[backend])
    error = refusal(cohort, "node-00000", ask.messages["node-00000"])
    assert isinstance(error, RefusalError)
    assert error.code == "cohort-too-small"


def test_a_malicious_server_cannot_be_withstood_without_enrolment() -> None:
    cohort = fresh("secagg-plus", threat=LYING)
    ask = asks(cohort, FIRST["secagg-plus"])
    error = refusal(cohort, "node-00000", ask.messages["node-00000"])
    assert isinstance(error, RefusalError)
    assert error.code == "enrolment-required"


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_quorum_that_colluders_could_fill_is_refused(backend: str) -> None:
    parties = {"a": 50, "b": 2, "c": 2, "d": 2, "e": 2}
    # One colluder may hold 50 users: 10 honest ones need a quorum of 60.
    spec = cohort_spec(backend, parties, threat=LYING, quorum=20, honest_floor=10)
    cohort = open_cohort(spec, parties, enrolment=Enrolment())
    error = refusal(cohort, "b", asks(cohort, FIRST[backend]).messages["b"])
    assert isinstance(error, RefusalError)
    assert error.code == "quorum-too-low"


@pytest.mark.parametrize("backend", BACKENDS)
def test_no_reward_is_spent_on_a_message_that_will_be_refused(backend: str) -> None:
    cohort = fresh(backend)
    ask = asks(cohort, VALUE[backend])
    kind: Any = {
        "secagg-plus": wire.ShareRequest,
        "sealed": sealed_pb2.SealRequest,
    }[backend]
    body = forged(
        ask.messages["node-00000"], kind, lambda m: setattr(m.roster, "size", 1)
    )
    with pytest.raises((RefusalError, ProtocolError)):
        cohort.clients["node-00000"].inspect(body)


# -- rule 2: sizes follow from the threat ------------------------------------------


def test_a_neighbourhood_of_another_size_is_refused() -> None:
    def fewer(request: wire.ShareRequest) -> None:
        del request.neighbours[1:], request.keys[1:]

    cohort = fresh("secagg-plus")
    body = asks(cohort, "share").messages["node-00000"]
    error = refusal(cohort, "node-00000", forged(body, wire.ShareRequest, fewer))
    assert isinstance(error, RefusalError)
    assert error.code == "graph-degree"


def test_a_neighbourhood_that_was_not_drawn_is_refused() -> None:
    def reorder(request: wire.ShareRequest) -> None:
        request.neighbours[0], request.neighbours[1] = (
            request.neighbours[1],
            request.neighbours[0],
        )

    cohort = fresh("secagg-plus")
    body = asks(cohort, "share").messages["node-00000"]
    error = refusal(cohort, "node-00000", forged(body, wire.ShareRequest, reorder))
    assert "not the ones that were drawn" in str(error)


# -- rule 2: one answer per cohort -------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_same_request_has_the_same_answer_and_another_one_has_none(
    backend: str,
) -> None:
    cohort = fresh(backend)
    body = asks(cohort, VALUE[backend]).messages["node-00000"]
    first = cohort.answer("node-00000", body)
    assert cohort.clients["node-00000"].inspect(body).answer().body == first
    assert not cohort.clients["node-00000"].inspect(body).needs_value
    # A field nobody knows makes other bytes of the same meaning.
    envelope = unwrap(body)
    other = wrap(
        envelope.stage,
        envelope.context,
        "",
        "node-00000",
        envelope.payload + b"\xf8\x3f\x01",
    )
    assert isinstance(refusal(cohort, "node-00000", other), ReplayedMessageError)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_second_session_of_the_same_cohort_is_refused(backend: str) -> None:
    rings: dict[str, ClientKeyring] = {}
    first = fresh(backend, keyrings=rings)
    assert isinstance(first.run(), SecureSum)
    second = fresh(backend, keyrings=rings)
    outcome = second.run()
    assert isinstance(outcome, Void)
    assert set(second.refusals.values()) == {"cohort-already-answered"}
