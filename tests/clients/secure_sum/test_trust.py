"""Whose keys a client believes, and that its secrets go (rules 3 and 5)."""

from __future__ import annotations

import gc
import types
from typing import Any

import pytest

from tests.support.lying_server import VALUE, fresh, refusal
from tests.support.secure_sums import NODE_BACKENDS as BACKENDS
from tests.support.secure_sums import (
    NOW,
    Cohort,
    Enrolment,
    asks,
    cohort_spec,
    forged,
    names,
    open_cohort,
)
from wallflower.clients.secure_sum import ClientKeyring, ClientLimits, client_session
from wallflower.protocol.errors import (
    AuthenticationError,
    RefusalError,
    WrongContextError,
)
from wallflower.protocol.identity.enrolment import Trust
from wallflower.protocol.secure_sum.envelope import unwrap
from wallflower.protocol.secure_sum.session import Ask, Contribution, SecureSum
from wallflower.protocol.wire import secure_sum_pb2 as wire

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
        cohort.keyrings["node-00003"],
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
        Trust(enrolment.key.public_key, lambda: NOW + 5000),
        Trust(enrolment.key.public_key, lambda: NOW, frozenset({certificate.serial})),
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


def test_members_refuse_a_set_with_more_users_than_a_certificate_allows() -> None:
    enrolment = Enrolment()
    enrolment.identity("node-00001", capacity=3)
    parties = dict.fromkeys(names(6), 3)
    cohort = open_cohort(
        cohort_spec("committee", parties, quorum=10), parties, enrolment=enrolment
    )
    body = asks(cohort, "tally").messages["node-00000"]

    def claim(request: wire.TallyRequest) -> None:
        closed = wire.ClosedSet.FromString(request.closed)
        closed.users[list(closed.contributors).index("node-00001")] = 4
        request.closed = closed.SerializeToString()

    error = refusal(cohort, "node-00000", forged(body, wire.TallyRequest, claim))
    assert isinstance(error, WrongContextError)


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


@pytest.mark.parametrize("backend", ["committee", "secagg-plus"])
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
        late.clients["node-00000"].handle(late_body, Contribution(secret * 10**12, 1))
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
