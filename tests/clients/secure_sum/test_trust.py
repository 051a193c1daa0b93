"""Whose keys a client believes, and that its secrets go (rules 3 and 5)."""

from __future__ import annotations

import gc
import types
from typing import Any

import pytest

from tests.support.client_sessions import client_session
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
from wallflower.clients.secure_sum.keyring import ClientKeyring
from wallflower.clients.secure_sum.limits import ClientLimits
from wallflower.protocol.errors import (
    AuthenticationError,
    RefusalError,
    WrongContextError,
)
from wallflower.protocol.identity.enrolment import Trust
from wallflower.protocol.secure_sum.context import unwrap
from wallflower.protocol.secure_sum.session import Ask, Contribution, SecureSum
from wallflower.protocol.wire import secure_sum_pb2 as wire

# -- rule 3: authenticated keys ----------------------------------------------------


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
    enrolment, party = Enrolment(), "node-00000"
    certificate = enrolment.identity("node-00001").certificate
    assert certificate is not None
    for trust in (
        Trust(enrolment.key.public_key, lambda: NOW + 5000),
        Trust(enrolment.key.public_key, lambda: NOW, frozenset({certificate.serial})),
    ):
        cohort = fresh("secagg-plus", enrolment=enrolment)
        cohort.clients[party] = client_session(
            cohort.spec,
            party,
            enrolment.identity(party),
            trust,
            ClientLimits(),
            cohort.keyrings[party],
        )
        body = asks(cohort, "share").messages[party]
        with pytest.raises(AuthenticationError, match=r"expired|revoked"):
            cohort.answer(party, body)


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


def test_a_closed_session_holds_no_secret() -> None:
    cohort = fresh(
        "secagg-plus",
        keyrings={party: ClientKeyring("run-1", reuse=False) for party in names(6)},
    )
    party = "node-00000"
    client: Any = cohort.clients[party]
    asks(cohort, "unmask")
    secrets = [
        client.own.private.private_bytes_raw(),
        client.memory.self_seed,
        client.memory.mask_key.private.private_bytes_raw(),
        *client.memory.shares.values(),
    ]
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
    client.inspect(body).answer(Contribution(secret, 1))
    texts = [repr(client), repr(cohort.server), repr(Contribution(secret, 1))]
    late = fresh(backend, cohort_id="other")
    late_body = asks(late, VALUE[backend]).messages["node-00000"]
    with pytest.raises(RefusalError) as caught:
        late.clients["node-00000"].inspect(late_body).answer(
            Contribution(secret * 10**12, 1)
        )
    texts.append(str(caught.value))
    assert not [text for text in texts if str(secret) in text]


def test_without_reuse_every_cohort_has_its_own_key() -> None:
    rings = {party: ClientKeyring("run-1", reuse=False) for party in names(4)}
    keys = set()
    for index in range(3):
        cohort = fresh("secagg-plus", 4, keyrings=rings, cohort_id=f"c{index}")
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
