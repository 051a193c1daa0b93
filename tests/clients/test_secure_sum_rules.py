"""What a client refuses, whoever asks (rules 2, 3 and 5 of docs/secure-sums.md)."""

from __future__ import annotations

import gc
import types
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest

from clients.secure_sum import ClientKeyring, ClientLimits, client_session
from protocol.backends import BACKENDS
from protocol.cohort_context import context_of, roster_bytes, roster_digest
from protocol.errors import (
    AuthenticationError,
    ProtocolError,
    RefusalError,
    ReplayedMessageError,
    WallflowerError,
    WrongContextError,
)
from protocol.identity import Trust
from protocol.session import Ask, Contribution, SecureSum, Void
from protocol.sum_envelope import unwrap, wrap
from protocol.threat import Threat
from protocol.wire import secure_sum_pb2 as wire
from tests.secure_sums import (
    NOW,
    TENTH,
    Cohort,
    Enrolment,
    asks,
    cohort_spec,
    forged,
    names,
    open_cohort,
)

LYING = Threat(TENTH, TENTH, malicious_server=True)
FIRST = {"committee": "keys", "secagg-plus": "advertise"}
VALUE = {"committee": "contribute", "secagg-plus": "share"}


def fresh(backend: str, nodes: int = 6, **options: Any) -> Cohort:
    parties = names(nodes)
    spec_options = {
        key: options.pop(key)
        for key in ("quorum", "threat", "cohort_id", "modulus")
        if key in options
    }
    return open_cohort(
        cohort_spec(backend, parties, **spec_options), parties, **options
    )


def refusal(cohort: Cohort, party: str, body: bytes) -> WallflowerError:
    """The error with which a party refuses a message; its session is then dead."""
    with pytest.raises((RefusalError, ProtocolError)) as caught:
        cohort.answer(party, body)
    with pytest.raises(WrongContextError, match="the session is over"):
        cohort.clients[party].handle(body)
    return caught.value


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


@pytest.mark.parametrize("backend", BACKENDS)
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
    kind: Any = wire.ContributeRequest if backend == "committee" else wire.ShareRequest
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


# -- rule 2: secagg-plus unmasking -------------------------------------------------


def unmask_with(change: Callable[[wire.UnmaskRequest], object]) -> WallflowerError:
    cohort = fresh("secagg-plus", 8)
    body = asks(cohort, "unmask").messages["node-00000"]
    return refusal(cohort, "node-00000", forged(body, wire.UnmaskRequest, change))


def test_both_kinds_of_share_of_one_neighbour_are_never_given() -> None:
    error = unmask_with(lambda request: request.dropped.append(request.present[0]))
    assert "both kinds" in str(error)


def test_a_survivor_relabelled_as_dropped_is_refused() -> None:
    def relabel(request: wire.UnmaskRequest) -> None:
        request.dropped.append(request.present.pop())

    assert "differ" in str(unmask_with(relabel))


def test_a_node_listed_as_dropped_itself_refuses() -> None:
    def drop_me(request: wire.UnmaskRequest) -> None:
        roster = {p: 1 for p in names(8) if p != "node-00000"}
        request.survivors.CopyFrom(
            wire.Standing(parties=7, users=7, roster=roster_bytes(roster))
        )

    assert "listed as dropped" in str(unmask_with(drop_me))


def test_shares_of_a_neighbour_listed_twice_are_refused() -> None:
    error = unmask_with(lambda request: request.present.append(request.present[0]))
    assert "twice" in str(error)


def test_shares_of_a_stranger_are_refused() -> None:
    error = unmask_with(lambda request: request.present.append(99))
    assert "not those that shared" in str(error)


def test_a_survivor_with_more_users_than_it_swore_is_refused() -> None:
    def inflate(request: wire.UnmaskRequest) -> None:
        roster = {**names(8), "node-00003": 2}
        request.survivors.CopyFrom(
            wire.Standing(parties=8, users=9, roster=roster_bytes(roster))
        )

    assert "cannot stand for 2 users" in str(unmask_with(inflate))


def test_survivors_that_too_few_neighbours_confirmed_are_refused() -> None:
    cohort = fresh("secagg-plus", 8, threat=LYING, enrolment=Enrolment())
    body = asks(cohort, "unmask").messages["node-00000"]

    def fewer(request: wire.UnmaskRequest) -> None:
        del request.confirmed[2:], request.signatures[2:]

    error = refusal(cohort, "node-00000", forged(body, wire.UnmaskRequest, fewer))
    assert isinstance(error, AuthenticationError)


def test_survivors_other_than_those_confirmed_are_refused() -> None:
    """The server shows one set for signatures and asks to unmask another."""
    cohort = fresh("secagg-plus", 8, threat=LYING, enrolment=Enrolment())
    body = asks(cohort, "unmask").messages["node-00000"]

    def other_set(request: wire.UnmaskRequest) -> None:
        victim = request.present.pop()
        request.dropped.append(victim)
        del request.confirmed[-1:], request.signatures[-1:]
        gone = cohort.clients["node-00000"].memory.request.neighbours[victim]  # type: ignore[attr-defined]
        roster = {party: 1 for party in names(8) if party != gone}
        request.survivors.CopyFrom(
            wire.Standing(parties=7, users=7, roster=roster_bytes(roster))
        )

    error = refusal(cohort, "node-00000", forged(body, wire.UnmaskRequest, other_set))
    assert "not those confirmed" in str(error)


def test_a_forged_confirmation_is_refused() -> None:
    cohort = fresh("secagg-plus", 8, threat=LYING, enrolment=Enrolment())
    body = asks(cohort, "unmask").messages["node-00000"]

    def forge(request: wire.UnmaskRequest) -> None:
        request.signatures[0] = request.signatures[1]

    error = refusal(cohort, "node-00000", forged(body, wire.UnmaskRequest, forge))
    assert isinstance(error, AuthenticationError)


def test_unmasking_without_confirmation_is_refused_by_a_malicious_setting() -> None:
    cohort = fresh("secagg-plus", 8, threat=LYING, enrolment=Enrolment())
    asks(cohort, "confirm")
    context = cohort.server.context  # type: ignore[attr-defined]
    standing = wire.Standing(parties=8, users=8, roster=roster_bytes(names(8)))
    payload = wire.UnmaskRequest(survivors=standing, present=range(7))
    body = wrap(
        wire.STAGE_UNMASK, context, "", "node-00000", payload.SerializeToString()
    )
    assert "skipped" in str(refusal(cohort, "node-00000", body))


# -- rule 2: the roster stays ------------------------------------------------------


@pytest.mark.parametrize(
    ("backend", "stage", "kind"),
    [
        ("committee", "contribute", wire.ContributeRequest),
        ("secagg-plus", "share", wire.ShareRequest),
    ],
)
def test_a_roster_that_changed_between_stages_is_refused(
    backend: str, stage: str, kind: Any
) -> None:
    cohort = fresh(backend)
    body = asks(cohort, stage).messages["node-00000"]
    roster = roster_bytes({**names(6), "sybil": 1})
    context = context_of(cohort.spec, roster_digest(roster), 7)
    request = kind.FromString(unwrap(body).payload)
    request.roster.CopyFrom(
        wire.RosterNote(digest=roster_digest(roster), size=7, roster=roster)
    )
    envelope = unwrap(body)
    other = wrap(envelope.stage, context, "", "node-00000", request.SerializeToString())
    error = refusal(cohort, "node-00000", other)
    assert isinstance(error, WrongContextError)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_roster_without_this_node_or_without_its_list_is_refused(
    backend: str,
) -> None:
    kind: Any = wire.KeysRequest if backend == "committee" else wire.AdvertiseRequest
    field = "roster" if backend == "committee" else "invited"
    for roster, told in ((roster_bytes({"a": 1, "b": 1}), True), (b"", False)):
        cohort = fresh(backend)
        body = asks(cohort, FIRST[backend]).messages["node-00000"]
        digest = roster_digest(roster)
        note = wire.RosterNote(digest=digest, size=2, roster=roster if told else b"")
        payload = kind(**{field: note}).SerializeToString()
        envelope = unwrap(body)
        other = wrap(
            envelope.stage,
            context_of(cohort.spec, digest, 2),
            "",
            "node-00000",
            payload,
        )
        assert isinstance(refusal(cohort, "node-00000", other), ProtocolError)


# -- rule 3: authenticated keys ----------------------------------------------------


def swap_member_key(request: wire.ContributeRequest) -> None:
    committee = wire.Committee.FromString(request.committee)
    committee.keys[0].key = b"\x09" * 32
    request.committee = committee.SerializeToString()


def test_a_member_key_the_server_swapped_is_refused() -> None:
    cohort = fresh("committee", enrolment=Enrolment())
    body = asks(cohort, "contribute").messages["node-00000"]
    error = refusal(
        cohort, "node-00000", forged(body, wire.ContributeRequest, swap_member_key)
    )
    assert isinstance(error, AuthenticationError)


def test_a_neighbour_key_the_server_swapped_is_refused() -> None:
    cohort = fresh("secagg-plus", enrolment=Enrolment())
    body = asks(cohort, "share").messages["node-00000"]
    for field in ("key", "mask_key"):

        def swap(request: wire.ShareRequest, field: str = field) -> None:
            setattr(request.keys[0], field, b"\x09" * 32)

        cohort = fresh("secagg-plus", enrolment=Enrolment())
        body = asks(cohort, "share").messages["node-00000"]
        error = refusal(cohort, "node-00000", forged(body, wire.ShareRequest, swap))
        assert isinstance(error, AuthenticationError)


def test_contributors_the_server_invented_are_refused_by_members() -> None:
    cohort = fresh("committee", enrolment=Enrolment())
    body = asks(cohort, "tally").messages["node-00000"]

    def invent(request: wire.TallyRequest) -> None:
        closed = wire.ClosedSet.FromString(request.closed)
        closed.keys[1].key = b"\x09" * 32
        request.closed = closed.SerializeToString()

    error = refusal(cohort, "node-00000", forged(body, wire.TallyRequest, invent))
    assert isinstance(error, AuthenticationError)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_node_of_another_enrolment_key_is_left_out_and_the_sum_goes_on(
    backend: str,
) -> None:
    ours, theirs = Enrolment(), Enrolment()
    cohort = fresh(backend, 8, enrolment=ours)
    stranger = client_session(
        cohort.spec,
        "node-00003",
        theirs.identity("node-00003"),
        ours.trust,
        ClientLimits(),
        ClientKeyring("run-1"),
    )
    cohort.clients["node-00003"] = stranger
    step = cohort.server.start()
    refused = []
    while isinstance(step, Ask):
        for party, body in step.messages.items():
            try:
                cohort.server.receive(party, cohort.answer(party, body))
            except AuthenticationError:
                refused.append(party)
        step = cohort.server.advance()
    assert isinstance(step, SecureSum)
    assert set(refused) == {"node-00003"}
    assert "node-00003" not in step.survivors
    assert step.total == cohort.expected(step.survivors)


def test_a_certificate_that_expires_or_is_revoked_during_a_run_stops_working() -> None:
    enrolment = Enrolment()
    rings: dict[str, ClientKeyring] = {}
    assert isinstance(
        fresh("committee", enrolment=enrolment, keyrings=rings).run(), SecureSum
    )
    certificate = enrolment.identity("node-00001").certificate
    assert certificate is not None
    for trust in (
        Trust(enrolment.key.public_key, NOW + 5000),
        Trust(enrolment.key.public_key, NOW, frozenset({certificate.serial})),
    ):
        cohort = fresh("committee", enrolment=enrolment, cohort_id="next")
        body = asks(cohort, "contribute").messages["node-00000"]
        rings["node-00000"]._claimed.clear()
        late = client_session(
            cohort.spec,
            "node-00000",
            enrolment.identity("node-00000"),
            trust,
            ClientLimits(),
            rings["node-00000"],
        )
        with pytest.raises(AuthenticationError, match=r"expired|revoked"):
            late.handle(body, Contribution(1, 1))


def test_a_node_that_claims_more_users_than_its_certificate_allows_is_refused() -> None:
    enrolment = Enrolment()
    enrolment.identity("node-00001", capacity=3)
    parties = dict.fromkeys(names(6), 5)
    spec = cohort_spec("committee", parties, quorum=10)
    cohort = open_cohort(spec, parties, enrolment=enrolment)
    outcome = cohort.run()
    assert isinstance(outcome, Void)
    assert set(cohort.refusals.values()) == {"wrong-context"}


# -- rule 5: secrets are dropped ---------------------------------------------------


def reachable(root: object) -> list[object]:
    """Everything an object holds, slots included, but no code."""
    code = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType)
    seen: dict[int, object] = {}
    todo = [root]
    while todo:
        item = todo.pop()
        if id(item) not in seen and not isinstance(item, code):
            seen[id(item)] = item
            todo += gc.get_referents(item)
    return list(seen.values())


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_closed_session_holds_no_secret(backend: str) -> None:
    cohort = fresh(
        backend,
        keyrings={party: ClientKeyring("run-1", reuse=False) for party in names(6)},
    )
    party = "node-00000"
    client: Any = cohort.clients[party]
    stage = "tally" if backend == "committee" else "unmask"
    asks(cohort, stage)
    secrets = [client.own.private.private_bytes_raw()]
    if backend == "secagg-plus":
        secrets += [
            client.memory.self_seed,
            client.memory.mask_key.private.private_bytes_raw(),
        ]
        secrets += list(client.memory.shares.values())
    assert all(len(secret) >= 32 for secret in secrets)
    client.close()
    left = [item for item in reachable(client) if isinstance(item, bytes)]
    assert not [item for item in left for secret in secrets if secret in item]
    assert client._own is None
    with pytest.raises(WrongContextError):
        client.snapshot()


@pytest.mark.parametrize("backend", BACKENDS)
def test_values_and_keys_stay_out_of_repr_and_errors(backend: str) -> None:
    parties = names(6)
    spec = cohort_spec(backend, parties, modulus=10**9)
    secret = 987654321
    cohort = open_cohort(spec, parties, dict.fromkeys(parties, secret))
    body = asks(cohort, VALUE[backend]).messages["node-00000"]
    client = cohort.clients["node-00000"]
    client.handle(body, Contribution(secret, 1))
    texts = [repr(client), repr(cohort.server), repr(Contribution(secret, 1))]
    late = fresh(backend, cohort_id="other")
    late_body = asks(late, VALUE[backend]).messages["node-00000"]
    with pytest.raises(RefusalError) as caught:
        late.clients["node-00000"].handle(late_body, Contribution(secret, 1))
    texts.append(str(caught.value))
    assert not [text for text in texts if str(secret) in text]


def test_without_reuse_every_cohort_has_its_own_key() -> None:
    rings = {party: ClientKeyring("run-1", reuse=False) for party in names(4)}
    keys = set()
    for index in range(3):
        cohort = fresh("committee", 4, keyrings=rings, cohort_id=f"c{index}")
        assert isinstance(cohort.run(), SecureSum)
        keys.add(cohort.clients["node-00000"].own.public)  # type: ignore[attr-defined]
    assert len(keys) == 3


# -- context: a seal opens in one place only ---------------------------------------


def two_cohorts(backend: str, stage: str) -> tuple[Cohort, Ask, Cohort, Ask]:
    """The same nodes with the same keys in two cohorts, both at `stage`."""
    rings: dict[str, ClientKeyring] = {}
    first = fresh(backend, keyrings=rings, cohort_id="first")
    first_ask = asks(first, stage)
    second = fresh(backend, keyrings=rings, cohort_id="second")
    return first, first_ask, second, asks(second, stage)


def complaints(cohort: Cohort, body: bytes) -> list[str]:
    answer = cohort.answer("node-00000", body)
    tally = wire.TallyAnswer.FromString(unwrap(answer).payload)
    return list(tally.complaint.contributors)


def test_a_contribution_of_one_cohort_does_not_open_in_another() -> None:
    _, old_ask, cohort, ask = two_cohorts("committee", "tally")
    old_body = old_ask.messages["node-00000"]
    old = wire.TallyRequest.FromString(unwrap(old_body).payload)
    old_closed = wire.ClosedSet.FromString(old.closed)

    def replay(request: wire.TallyRequest) -> None:
        closed = wire.ClosedSet.FromString(request.closed)
        assert closed.contributors[2] == old_closed.contributors[2]
        assert closed.keys[2] == old_closed.keys[2]
        closed.salts = closed.salts[:32] + old_closed.salts[32:48] + closed.salts[48:]
        request.closed = closed.SerializeToString()
        cut_out = slice(2 * 28, 3 * 28)
        request.sealed = (
            request.sealed[: 2 * 28] + old.sealed[cut_out] + request.sealed[3 * 28 :]
        )

    body = forged(ask.messages["node-00000"], wire.TallyRequest, replay)
    assert complaints(cohort, body) == ["node-00002"]


def test_a_contribution_for_another_committee_does_not_open() -> None:
    cohort = fresh("committee")
    body = asks(cohort, "tally").messages["node-00000"]

    def other_committee(request: wire.TallyRequest) -> None:
        closed = wire.ClosedSet.FromString(request.closed)
        closed.committee = bytes(32)
        request.closed = closed.SerializeToString()

    assert complaints(cohort, forged(body, wire.TallyRequest, other_committee)) == list(
        cohort.parties
    )


def test_a_seal_for_one_member_does_not_open_for_another() -> None:
    cohort = fresh("committee")
    ask = asks(cohort, "tally")
    theirs = wire.TallyRequest.FromString(unwrap(ask.messages["node-00001"]).payload)

    def swap(request: wire.TallyRequest) -> None:
        request.sealed = theirs.sealed

    body = forged(ask.messages["node-00000"], wire.TallyRequest, swap)
    # Pair key and receiver are both bound into the sealing key.
    assert complaints(cohort, body) == list(cohort.parties)


def test_shares_of_one_cohort_do_not_open_in_another() -> None:
    _, old_ask, cohort, ask = two_cohorts("secagg-plus", "mask")
    old_body = old_ask.messages["node-00000"]
    old = wire.MaskRequest.FromString(unwrap(old_body).payload)

    def replay(request: wire.MaskRequest) -> None:
        request.salts, request.sealed = old.salts, old.sealed

    cohort.answer(
        "node-00000", forged(ask.messages["node-00000"], wire.MaskRequest, replay)
    )
    client: Any = cohort.clients["node-00000"]
    assert client.memory.shares == {}
