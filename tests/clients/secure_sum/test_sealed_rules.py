"""What a node refuses before it seals, deals or opens, whatever the server says."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import pytest

from tests.support.lying_server import LYING, refusal
from tests.support.secure_sums import (
    TENTH,
    Cohort,
    Enrolment,
    asks,
    cohort_spec,
    deal_key,
    forged,
    names,
    open_cohort,
    run_dealing,
)
from wallflower.clients.secure_sum.keyring import ClientKeyring
from wallflower.protocol.errors import (
    AuthenticationError,
    MalformedMessageError,
    ProtocolError,
    RefusalError,
    WallflowerError,
    WrongContextError,
)
from wallflower.protocol.secure_sum.context import unwrap
from wallflower.protocol.secure_sum.sealed.cipher import (
    encrypt,
    sealed_context,
    statement,
)
from wallflower.protocol.secure_sum.sealed.committee import read_statement
from wallflower.protocol.secure_sum.sealed.dealing import dealing_name
from wallflower.protocol.secure_sum.sealed.group import (
    KeyPair,
    Point,
    base,
    times,
    total,
)
from wallflower.protocol.secure_sum.session import Ask, KeyReady, SecureSum
from wallflower.protocol.secure_sum.threat import Threat
from wallflower.protocol.wire import sealed_pb2 as wire
from wallflower.strategy.secure_sum import ServerKeyring

NODE = "node-00000"
ENROLMENT = Enrolment()
HONEST = Threat(TENTH, TENTH)


def fresh(lying: bool = False, nodes: int = 6, cohort_id: str = "cohort-1") -> Cohort:
    parties = names(nodes)
    threat = LYING if lying else HONEST
    spec = cohort_spec("sealed", parties, threat=threat, cohort_id=cohort_id)
    return open_cohort(spec, parties, enrolment=ENROLMENT if lying else None)


def fresh_dealing(lying: bool = False, nodes: int = 6) -> Cohort:
    ring = ServerKeyring("run-1")
    threat = LYING if lying else HONEST
    enrolment = ENROLMENT if lying else None
    return deal_key("run-1", threat, names(nodes), {}, ring, enrolment)


def refused(
    cohort: Cohort, stage: str, kind: type, change: Callable[..., object]
) -> WallflowerError:
    """Return how a node refuses a message of a stage that the server changed."""
    messages = asks(cohort, stage).messages
    party = next(iter(messages))
    return refusal(cohort, party, forged(messages[party], kind, change))


# -- the key to seal under ---------------------------------------------------------


def evidence_with(
    change: Callable[[wire.DealingEvidence], object],
) -> Callable[[wire.SealRequest], None]:
    def apply(request: wire.SealRequest) -> None:
        evidence = wire.DealingEvidence.FromString(request.dealing.evidence)
        change(evidence)
        request.dealing.evidence = evidence.SerializeToString()

    return apply


def test_a_key_that_the_server_swapped_is_refused() -> None:
    own = KeyPair.generate()

    def swap(request: wire.SealRequest) -> None:
        request.dealing.key = bytes(own.point)

    error = refused(fresh(lying=True), "seal", wire.SealRequest, swap)
    assert isinstance(error, AuthenticationError)


def test_a_swapped_key_is_refused_also_after_the_right_one_was_verified() -> None:
    first = fresh(lying=True)
    assert isinstance(first.run(), SecureSum)
    spec = cohort_spec("sealed", first.parties, threat=LYING, cohort_id="second")
    second = open_cohort(
        spec,
        first.parties,
        enrolment=ENROLMENT,
        keyrings=first.keyrings,
        server_keyring=first.server.opening.keyring,  # type: ignore[attr-defined]
    )

    def swap(request: wire.SealRequest) -> None:
        request.dealing.key = bytes(base(5))

    error = refused(second, "seal", wire.SealRequest, swap)
    assert isinstance(error, AuthenticationError)


def test_a_key_without_evidence_is_refused_where_the_server_may_lie() -> None:
    def hide(request: wire.SealRequest) -> None:
        request.dealing.evidence = b""

    error = refused(fresh(lying=True), "seal", wire.SealRequest, hide)
    assert isinstance(error, ProtocolError)


def drop_dealers(evidence: wire.DealingEvidence) -> None:
    del evidence.accepted[1:]


def repeat_a_dealer(evidence: wire.DealingEvidence) -> None:
    evidence.accepted[1].CopyFrom(evidence.accepted[0])


def forget_a_signature(evidence: wire.DealingEvidence) -> None:
    evidence.accepted[0].signature = b""


def sign_by_another(evidence: wire.DealingEvidence) -> None:
    evidence.accepted[0].signature = evidence.accepted[1].signature


def enrol_by_another(evidence: wire.DealingEvidence) -> None:
    stranger = Enrolment().identity(evidence.accepted[0].dealer)
    assert stranger.certificate is not None
    evidence.accepted[0].certificate = stranger.certificate.to_bytes()


def cancel_the_key(evidence: wire.DealingEvidence) -> None:
    """One constant is replaced so that the sum is a key with a known secret."""
    others = [Point.parse(one.constant) for one in evidence.accepted[1:]]
    evidence.accepted[0].constant = bytes(KeyPair.generate().point - total(others))


def milder_threat(evidence: wire.DealingEvidence) -> None:
    evidence.spec.threat.corrupt.numerator = 0


def another_run(evidence: wire.DealingEvidence) -> None:
    evidence.spec.run_id = "run-2"


def a_cohort_for_a_dealing(evidence: wire.DealingEvidence) -> None:
    evidence.spec.mechanism = "dist-dp"


def smaller_committee(evidence: wire.DealingEvidence) -> None:
    committee = wire.DealtCommittee.FromString(evidence.committee)
    del committee.members[-1:], committee.places[-1:], committee.keys[-1:]
    evidence.committee = committee.SerializeToString()


@pytest.mark.parametrize(
    "change",
    [
        drop_dealers,
        repeat_a_dealer,
        forget_a_signature,
        sign_by_another,
        enrol_by_another,
        cancel_the_key,
        milder_threat,
        another_run,
        a_cohort_for_a_dealing,
        smaller_committee,
    ],
)
def test_evidence_that_does_not_hold_is_refused(
    change: Callable[[wire.DealingEvidence], object],
) -> None:
    error = refused(fresh(lying=True), "seal", wire.SealRequest, evidence_with(change))
    assert isinstance(error, ProtocolError | RefusalError)


def test_dealers_that_may_all_collude_make_no_key() -> None:
    """The server leaves the honest out and names and adds up the rest correctly."""
    cohort = fresh(lying=True)
    key = cohort.server.opening.keyring.dealt  # type: ignore[attr-defined]

    def colluders_only(request: wire.SealRequest) -> None:
        evidence = wire.DealingEvidence.FromString(request.dealing.evidence)
        del evidence.accepted[1:]
        (alone,) = (read_statement(one, key.terms, None) for one in evidence.accepted)
        request.dealing.evidence = evidence.SerializeToString()
        request.dealing.key = alone.constant
        digests = {alone.dealer: alone.digest(key.terms)}
        request.dealing.name = dealing_name(key.terms, digests)

    error = refused(cohort, "seal", wire.SealRequest, colluders_only)
    assert isinstance(error, RefusalError)
    assert error.code == "too-few-dealers"


def test_colluding_dealers_that_were_not_drawn_make_no_key() -> None:
    """Enrolled, signed, proven — but the draw of the whole roster did not name them."""
    parties = names(70)
    threat = Threat(Fraction(1, 20), Fraction(1, 20), malicious_server=True)
    ring = ServerKeyring("run-1")
    rings: dict[str, ClientKeyring] = {}
    deal_args = ("run-1", threat, parties, rings, ring, ENROLMENT)
    dealing = deal_key(*deal_args)
    drawn = list(dealing.server._seats.places)  # type: ignore[attr-defined]
    assert isinstance(run_dealing(dealing), KeyReady)
    spec = cohort_spec("sealed", parties, threat=threat)
    cohort = open_cohort(
        spec, parties, enrolment=ENROLMENT, keyrings=rings, server_keyring=ring
    )
    outsider = next(party for party in parties if party not in drawn)

    def outsiders(evidence: wire.DealingEvidence) -> None:
        evidence.accepted[0].dealer = outsider

    error = refused(cohort, "seal", wire.SealRequest, evidence_with(outsiders))
    assert isinstance(error, WrongContextError)
    assert "not drawn" in str(error)


@pytest.mark.parametrize("key", [b"", bytes(33), b"\x02" + b"\xff" * 32, b"\x04" * 65])
def test_a_key_that_is_no_point_is_refused(key: bytes) -> None:
    def spoil(request: wire.SealRequest) -> None:
        request.dealing.key = key

    error = refused(fresh(), "seal", wire.SealRequest, spoil)
    assert isinstance(error, MalformedMessageError)


def test_a_dealing_without_a_name_is_refused() -> None:
    def unname(request: wire.SealRequest) -> None:
        request.dealing.name = b""

    error = refused(fresh(), "seal", wire.SealRequest, unname)
    assert isinstance(error, MalformedMessageError)


# -- secrets -----------------------------------------------------------------------


def test_a_contributor_keeps_nothing_of_what_it_sealed() -> None:
    cohort = fresh()
    ask = asks(cohort, "seal")
    cohort.answer(NODE, ask.messages[NODE])
    kept = cohort.clients[NODE].snapshot()
    assert len(kept) < 2000
    cohort.clients[NODE].close()
    with pytest.raises(WrongContextError):
        cohort.clients[NODE].snapshot()


def test_the_key_of_a_dealing_is_forgotten_with_the_check() -> None:
    dealing = fresh_dealing()
    messages = asks(dealing, "check").messages
    client = dealing.clients[NODE]
    pair = client._part._pair  # type: ignore[attr-defined]
    assert pair is not None
    secret = pair.secret.to_bytes(32, "big")
    assert secret in client.snapshot()
    dealing.answer(NODE, messages[NODE])
    assert secret not in client.snapshot()
    assert client._part._pair is None  # type: ignore[attr-defined]


def test_shares_and_keys_stay_out_of_reprs_and_errors() -> None:
    cohort = fresh()
    ask = asks(cohort, "open", NODE)
    request = wire.OpenRequest.FromString(unwrap(ask.messages[NODE]).payload)
    held = cohort.keyrings[NODE].key_shares.get(request.dealing_id)
    assert held is not None
    shares = [one.share for one in wire.MemberState.FromString(held).shares.values()]
    texts = [
        repr(cohort.clients[NODE]),
        repr(cohort.keyrings[NODE]),
        repr(cohort.keyrings[NODE].key_shares),
        repr(cohort.server),
    ]
    error = refusal(
        cohort,
        NODE,
        forged(
            ask.messages[NODE],
            wire.OpenRequest,
            lambda r: setattr(r, "dealing", b"x" * 32),
        ),
    )
    texts.append(str(error))
    for share in shares:
        number = str(int.from_bytes(share, "big"))
        assert not [t for t in texts if share.hex() in t or number in t]


def test_a_members_key_is_gone_when_its_dealing_is_closed() -> None:
    cohort = fresh()
    body = asks(cohort, "open", NODE).messages[NODE]
    dealing_id = wire.OpenRequest.FromString(unwrap(body).payload).dealing_id
    key_shares = cohort.keyrings[NODE].key_shares
    assert key_shares.get(dealing_id) is not None
    cohort.keyrings[NODE].forget_dealing(dealing_id)
    assert key_shares.get(dealing_id) is None
    error = refusal(cohort, NODE, body)
    assert isinstance(error, RefusalError)
    assert error.code == "not-a-member"


# -- what is bound together --------------------------------------------------------


def test_a_proof_of_one_dealing_is_nothing_under_another() -> None:
    public = KeyPair.generate().point
    sealed, _ = encrypt(public, 1)
    one, two = bytes(sealed.one), bytes(sealed.two)
    said = {
        statement(sealed_context(b"c" * 32, name), NODE, 1, one, two)
        for name in (b"a" * 32, b"b" * 32)
    }
    assert len(said) == 2
    assert times(public, 2) != public


def test_messages_of_a_stage_are_the_same_for_every_contributor_but_the_address() -> (
    None
):
    cohort = fresh()
    step = cohort.server.start()
    assert isinstance(step, Ask)
    payloads = {unwrap(body).payload for body in step.messages.values()}
    assert len(payloads) == 1
