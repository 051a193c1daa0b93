"""What a client refuses, whoever asks (rule 2 of docs/secure-sums.md)."""

from __future__ import annotations

from collections.abc import Callable
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
    names,
    open_cohort,
)
from wallflower.clients.secure_sum import ClientKeyring, ClientLimits
from wallflower.protocol.errors import (
    ProtocolError,
    RefusalError,
    ReplayedMessageError,
    WallflowerError,
)
from wallflower.protocol.secure_sum.envelope import unwrap, wrap
from wallflower.protocol.secure_sum.session import SecureSum, Void
from wallflower.protocol.wire import sealed_pb2
from wallflower.protocol.wire import secure_sum_pb2 as wire

# -- rule 2: minima ----------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("limits", "code"),
    [
        (ClientLimits(minimum_parties=7), "cohort-too-small"),
        (ClientLimits(minimum_users=5), "cohort-too-small"),
        (ClientLimits(minimum_corrupt=Fraction(1, 5)), "threat-too-mild"),
        (ClientLimits(require_enrolment=True), "enrolment-required"),
        (ClientLimits(require_malicious=True), "threat-too-mild"),
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


@pytest.mark.parametrize("backend", ["committee", "secagg-plus"])
def test_a_malicious_server_cannot_be_withstood_without_enrolment(backend: str) -> None:
    cohort = fresh(backend, threat=LYING)
    error = refusal(
        cohort, "node-00000", asks(cohort, FIRST[backend]).messages["node-00000"]
    )
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
    assert error.code == "quorum-too-small"


@pytest.mark.parametrize("backend", BACKENDS)
def test_no_reward_is_spent_on_a_message_that_will_be_refused(backend: str) -> None:
    cohort = fresh(backend)
    ask = asks(cohort, VALUE[backend])
    kind: Any = {
        "committee": wire.ContributeRequest,
        "secagg-plus": wire.ShareRequest,
        "sealed": sealed_pb2.SealRequest,
    }[backend]
    body = forged(
        ask.messages["node-00000"], kind, lambda m: setattr(m.roster, "size", 1)
    )
    with pytest.raises((RefusalError, ProtocolError)):
        cohort.clients["node-00000"].needs_contribution(body)


# -- rule 2: sizes follow from the threat ------------------------------------------


def shrink_committee(request: wire.ContributeRequest, keep: int) -> None:
    committee = wire.Committee.FromString(request.committee)
    del committee.members[keep:], committee.keys[keep:]
    request.committee = committee.SerializeToString()


def test_a_committee_below_the_threshold_of_the_threat_is_refused() -> None:
    cohort = fresh("committee", 12)  # t = ⌈1.2⌉ + 1 = 3
    body = asks(cohort, "contribute").messages["node-00000"]
    few = forged(body, wire.ContributeRequest, lambda m: shrink_committee(m, 2))
    error = refusal(cohort, "node-00000", few)
    assert isinstance(error, RefusalError)
    assert error.code == "committee-size"


def test_a_repeated_committee_member_is_refused() -> None:
    def repeat(request: wire.ContributeRequest) -> None:
        committee = wire.Committee.FromString(request.committee)
        committee.members[1] = committee.members[0]
        request.committee = committee.SerializeToString()

    cohort = fresh("committee")
    body = asks(cohort, "contribute").messages["node-00000"]
    error = refusal(cohort, "node-00000", forged(body, wire.ContributeRequest, repeat))
    assert "repeats itself" in str(error)


def test_a_committee_the_server_picked_itself_is_refused() -> None:
    def pick(request: wire.ContributeRequest) -> None:
        committee = wire.Committee.FromString(request.committee)
        committee.members[0] = "the-servers-friend"
        request.committee = committee.SerializeToString()

    cohort = fresh("committee")
    body = asks(cohort, "contribute").messages["node-00000"]
    error = refusal(cohort, "node-00000", forged(body, wire.ContributeRequest, pick))
    assert "not drawn" in str(error)


def test_a_large_committee_is_drawn_by_hash_and_checked() -> None:
    """100 nodes: c of them are drawn; swapping one for an undrawn node is noticed."""
    cohort = fresh("committee", 100, threat=LYING, enrolment=Enrolment())
    body = asks(cohort, "contribute").messages["node-00000"]
    request = wire.ContributeRequest.FromString(unwrap(body).payload)
    members = set(wire.Committee.FromString(request.committee).members)
    assert len(members) < 100
    outsider = next(party for party in cohort.parties if party not in members)

    def swap(request: wire.ContributeRequest) -> None:
        committee = wire.Committee.FromString(request.committee)
        committee.members[0] = outsider
        request.committee = committee.SerializeToString()

    error = refusal(cohort, "node-00000", forged(body, wire.ContributeRequest, swap))
    assert "not drawn" in str(error)


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
    assert cohort.clients["node-00000"].handle(body) == first
    assert not cohort.clients["node-00000"].needs_contribution(body)
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


def tally_twice(change: Callable[[wire.ClosedSet], object]) -> WallflowerError:
    cohort = fresh("committee")
    body = asks(cohort, "tally").messages["node-00000"]
    cohort.answer("node-00000", body)

    def rewrite(request: wire.TallyRequest) -> None:
        closed = wire.ClosedSet.FromString(request.closed)
        change(closed)
        request.closed = closed.SerializeToString()
        request.sealed = request.sealed[: 28 * len(closed.contributors)]

    return refusal(cohort, "node-00000", forged(body, wire.TallyRequest, rewrite))


def test_a_member_does_not_tally_a_second_closed_set() -> None:
    def smaller(closed: wire.ClosedSet) -> None:
        closed.contributors.pop()
        closed.keys.pop()
        closed.users.pop()
        closed.salts = closed.salts[:-16]

    assert isinstance(tally_twice(smaller), ReplayedMessageError)


# -- rule 2: closed sets -----------------------------------------------------------


def tally_with(
    change: Callable[[wire.ClosedSet, list[bytes]], object], **options: Any
) -> WallflowerError:
    cohort = fresh("committee", **options)
    body = asks(cohort, "tally").messages["node-00000"]

    def rewrite(request: wire.TallyRequest) -> None:
        closed = wire.ClosedSet.FromString(request.closed)
        seals = [request.sealed[i : i + 28] for i in range(0, len(request.sealed), 28)]
        change(closed, seals)
        request.closed = closed.SerializeToString()
        request.sealed = b"".join(seals)

    return refusal(cohort, "node-00000", forged(body, wire.TallyRequest, rewrite))


def cut(closed: wire.ClosedSet, seals: list[bytes], keep: int) -> None:
    del (
        closed.contributors[keep:],
        closed.keys[keep:],
        closed.users[keep:],
        seals[keep:],
    )
    closed.salts = closed.salts[: 16 * keep]


def test_a_sum_over_too_few_nodes_is_refused() -> None:
    error = tally_with(lambda closed, seals: cut(closed, seals, 2))
    assert isinstance(error, RefusalError)
    assert error.code == "set-too-small"


def test_a_sum_below_the_quorum_is_refused() -> None:
    error = tally_with(lambda closed, seals: cut(closed, seals, 4), quorum=5)
    assert isinstance(error, RefusalError)
    assert error.code == "quorum-not-met"


def test_users_the_server_made_up_do_not_fill_the_quorum() -> None:
    """The invited bound stops the claim; within it the seal's own count does."""

    def inflate(closed: wire.ClosedSet, seals: list[bytes]) -> None:
        cut(closed, seals, 4)
        closed.users[0] = 2

    assert "more users than were invited" in str(tally_with(inflate, quorum=5))

    parties = dict.fromkeys(names(6), 2)
    cohort = open_cohort(cohort_spec("committee", parties, quorum=6), parties)
    cohort.parties = dict.fromkeys(parties, 1)  # one user of each node fell ill
    body = asks(cohort, "tally").messages["node-00000"]

    def claim_two(request: wire.TallyRequest) -> None:
        closed = wire.ClosedSet.FromString(request.closed)
        closed.users[0] = 2
        request.closed = closed.SerializeToString()

    answer = cohort.answer("node-00000", forged(body, wire.TallyRequest, claim_two))
    tally = wire.TallyAnswer.FromString(unwrap(answer).payload)
    assert tally.WhichOneof("outcome") == "complaint"


def test_a_node_counted_twice_is_refused() -> None:
    def double(closed: wire.ClosedSet, seals: list[bytes]) -> None:
        closed.contributors[1] = closed.contributors[0]

    assert "twice" in str(tally_with(double))


def test_a_node_counted_twice_under_two_names_is_refused() -> None:
    def double(closed: wire.ClosedSet, seals: list[bytes]) -> None:
        closed.keys[1].CopyFrom(closed.keys[0])

    assert "share a key" in str(tally_with(double))


def test_a_stranger_in_the_closed_set_is_refused() -> None:
    def stranger(closed: wire.ClosedSet, seals: list[bytes]) -> None:
        closed.contributors[0] = "nobody-invited-me"

    assert "not on the roster" in str(tally_with(stranger))
