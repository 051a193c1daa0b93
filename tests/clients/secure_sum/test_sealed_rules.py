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
from wallflower.clients.secure_sum import ClientKeyring, ClientLimits, client_session
from wallflower.protocol.errors import (
    AuthenticationError,
    MalformedMessageError,
    ProtocolError,
    RefusalError,
    ReplayedMessageError,
    WallflowerError,
    WrongContextError,
)
from wallflower.protocol.secure_sum.envelope import unwrap, wrap
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
from wallflower.protocol.secure_sum.session import Ask, Dealt, SecureSum, Void
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
    """What a node says to a message of a stage that the server changed."""
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
    assert isinstance(run_dealing(dealing), Dealt)
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


# -- opening -----------------------------------------------------------------------


def test_a_member_opens_a_cohort_once_and_no_overlapping_set_after_it() -> None:
    cohort = fresh()
    ask = asks(cohort, "open")
    body = ask.messages[NODE]
    answer = cohort.answer(NODE, body)
    assert cohort.clients[NODE].handle(body) == answer

    def fewer(request: wire.OpenRequest) -> None:
        request.contributors -= 1
        request.users -= 1
        request.sum = bytes(Point.parse(request.sum) + base(1))

    error = refusal(cohort, NODE, forged(body, wire.OpenRequest, fewer))
    assert isinstance(error, ReplayedMessageError)


def test_a_member_opens_no_second_set_in_a_session_of_its_own_either() -> None:
    cohort = fresh()
    body = asks(cohort, "open").messages[NODE]
    cohort.answer(NODE, body)
    again = client_session(
        cohort.spec, NODE, None, None, ClientLimits(), cohort.keyrings[NODE]
    )
    with pytest.raises(RefusalError) as caught:
        again.handle(body)
    assert caught.value.code == "cohort-already-answered"


@pytest.mark.parametrize(
    ("field", "value", "code"),
    [("contributors", 2, "set-too-small"), ("users", 1, "quorum-not-met")],
)
@pytest.mark.parametrize("lying", [False, True])
def test_a_set_below_the_quorum_is_not_opened(
    lying: bool, field: str, value: int, code: str
) -> None:
    error = refused(
        fresh(lying),
        "open",
        wire.OpenRequest,
        lambda request: setattr(request, field, value),
    )
    assert isinstance(error, RefusalError)
    assert error.code == code


def test_more_contributors_than_nodes_are_refused() -> None:
    error = refused(
        fresh(),
        "open",
        wire.OpenRequest,
        lambda request: setattr(request, "contributors", 7),
    )
    assert isinstance(error, WrongContextError)


def leave_one_out(request: wire.OpenRequest) -> None:
    del request.senders[0], request.sealed[0]


def leave_one_out_of_everything(request: wire.OpenRequest) -> None:
    """A smaller set, every number adjusted, with the old sum."""
    del request.senders[0], request.sealed[0]
    request.contributors -= 1
    request.users -= 1


def name_one_twice(request: wire.OpenRequest) -> None:
    request.senders[1] = request.senders[0]
    request.sealed[1].CopyFrom(request.sealed[0])


def take_over(request: wire.OpenRequest) -> None:
    """Somebody's ciphertext under another name."""
    request.sealed[1].CopyFrom(request.sealed[0])


def claim_more_users(request: wire.OpenRequest) -> None:
    request.sealed[0].users += 1
    request.users += 1


def invent_a_sender(request: wire.OpenRequest) -> None:
    request.senders[5] = "node-99999"


def unsign(request: wire.OpenRequest) -> None:
    request.sealed[0].signature = b""


def unenrol(request: wire.OpenRequest) -> None:
    request.sealed[0].certificate = b""


def unprove(request: wire.OpenRequest) -> None:
    request.sealed[0].proof = bytes(64)


def shift_the_value(request: wire.OpenRequest) -> None:
    request.sealed[0].two = bytes(Point.parse(request.sealed[0].two) + base(1))


def rerandomise(request: wire.OpenRequest) -> None:
    extra = Point.parse(request.sealed[0].one) + base(7)
    request.sealed[1].one = bytes(extra)


def another_sum(request: wire.OpenRequest) -> None:
    """Open something else than what the set adds up to: one ciphertext, say."""
    request.sum = request.sealed[0].one


def infinity(request: wire.OpenRequest) -> None:
    request.sealed[0].one = bytes(33)


@pytest.mark.parametrize(
    "change",
    [
        leave_one_out,
        leave_one_out_of_everything,
        name_one_twice,
        take_over,
        claim_more_users,
        invent_a_sender,
        unsign,
        unenrol,
        unprove,
        shift_the_value,
        rerandomise,
        another_sum,
        infinity,
    ],
)
def test_a_set_that_a_lying_server_changed_is_not_opened(
    change: Callable[[wire.OpenRequest], object],
) -> None:
    error = refused(fresh(lying=True), "open", wire.OpenRequest, change)
    assert isinstance(error, ProtocolError)


def test_contributions_of_another_cohort_are_not_opened_with_this_one() -> None:
    old = fresh(lying=True, cohort_id="old")
    theirs = wire.OpenRequest.FromString(
        unwrap(asks(old, "open").messages[NODE]).payload
    )

    def transplant(request: wire.OpenRequest) -> None:
        request.sealed[2].CopyFrom(theirs.sealed[2])

    error = refused(fresh(lying=True), "open", wire.OpenRequest, transplant)
    assert isinstance(error, AuthenticationError)


def test_what_was_sealed_under_one_dealing_is_not_opened_under_another() -> None:
    """The same nodes, the same cohort, another set of dealers: another name."""
    cohort = fresh(lying=True)

    def fewer_dealers(request: wire.OpenRequest) -> None:
        del request.dealers[0]

    error = refused(cohort, "open", wire.OpenRequest, fewer_dealers)
    assert isinstance(error, WrongContextError)


def test_a_dealing_of_too_few_dealers_is_not_opened() -> None:
    def one_dealer(request: wire.OpenRequest) -> None:
        del request.dealers[1:]

    error = refused(fresh(), "open", wire.OpenRequest, one_dealer)
    assert isinstance(error, RefusalError)
    assert error.code == "too-few-dealers"


def test_dealers_listed_twice_or_out_of_order_are_refused() -> None:
    def repeat(request: wire.OpenRequest) -> None:
        request.dealers.append(request.dealers[0])

    error = refused(fresh(), "open", wire.OpenRequest, repeat)
    assert isinstance(error, MalformedMessageError)


def test_a_dealer_whose_share_this_member_does_not_hold_is_refused() -> None:
    def stranger(request: wire.OpenRequest) -> None:
        request.dealers.append("zzz")

    error = refused(fresh(), "open", wire.OpenRequest, stranger)
    assert isinstance(error, RefusalError)
    assert error.code == "no-share"


def test_a_node_without_a_share_says_so() -> None:
    def elsewhere(request: wire.OpenRequest) -> None:
        request.dealing_id = "another"

    error = refused(fresh(), "open", wire.OpenRequest, elsewhere)
    assert isinstance(error, RefusalError)
    assert error.code == "not-a-member"


@pytest.mark.parametrize("summed", [b"", bytes(33), b"\x02" + b"\xff" * 32])
def test_a_sum_that_is_no_point_is_refused(summed: bytes) -> None:
    def spoil(request: wire.OpenRequest) -> None:
        request.sum = summed

    error = refused(fresh(), "open", wire.OpenRequest, spoil)
    assert isinstance(error, MalformedMessageError)


def test_a_key_dealt_for_a_milder_threat_opens_nothing() -> None:
    cohort = fresh()
    state = cohort.keyrings[NODE].vault
    ask = asks(cohort, "open")
    request = wire.OpenRequest.FromString(unwrap(ask.messages[NODE]).payload)
    held = state.read(request.dealing_id)
    assert held is not None
    member = wire.MemberState.FromString(held)
    member.threat = Threat(Fraction(0), TENTH).to_wire().SerializeToString()
    state.write(request.dealing_id, member.SerializeToString())
    assert isinstance(refusal(cohort, NODE, ask.messages[NODE]), WrongContextError)


def test_a_member_that_is_in_no_cohort_opens_it_all_the_same() -> None:
    """Members serve the run; their own users may be all used, or never asked."""
    parties, rings, ring = names(9), {}, ServerKeyring("run-1")  # type: ignore[var-annotated]
    assert isinstance(
        run_dealing(deal_key("run-1", HONEST, parties, rings, ring)), Dealt
    )
    few = dict(list(parties.items())[:5])
    spec = cohort_spec("sealed", few)
    cohort = open_cohort(spec, few, keyrings=rings, server_keyring=ring)
    for party in list(parties)[5:]:
        cohort.clients[party] = client_session(
            spec, party, None, None, ClientLimits(), rings[party]
        )
    outcome = cohort.run(up=lambda stage, party: stage == "seal" or party not in few)
    assert isinstance(outcome, SecureSum)
    assert outcome.total == cohort.expected(outcome.survivors)


# -- dealing -----------------------------------------------------------------------


def test_a_lying_server_needs_an_enrolment_key_already_when_dealing() -> None:
    ring = ServerKeyring("run-1")
    dealing = deal_key("run-1", LYING, names(6), {}, ring)
    assert isinstance(run_dealing(dealing), Void)
    assert set(dealing.refusals.values()) == {"enrolment-required"}


@pytest.mark.parametrize(
    ("limits", "code"),
    [
        (ClientLimits(minimum_parties=7), "cohort-too-small"),
        (ClientLimits(minimum_corrupt=Fraction(1, 5)), "threat-too-mild"),
        (ClientLimits(require_malicious=True), "threat-too-mild"),
    ],
)
def test_a_dealing_below_a_nodes_minimum_is_refused(
    limits: ClientLimits, code: str
) -> None:
    dealing = fresh_dealing()
    dealing.clients[NODE] = client_session(
        dealing.spec, NODE, None, None, limits, dealing.keyrings[NODE]
    )
    error = refusal(dealing, NODE, asks(dealing, "enlist").messages[NODE])
    assert isinstance(error, RefusalError)
    assert error.code == code


def committee_with(
    change: Callable[[wire.DealtCommittee], object],
) -> Callable[[wire.DealRequest], None]:
    def apply(request: wire.DealRequest) -> None:
        committee = wire.DealtCommittee.FromString(request.committee)
        change(committee)
        request.committee = committee.SerializeToString()

    return apply


def shrink(committee: wire.DealtCommittee) -> None:
    del committee.members[1:], committee.places[1:], committee.keys[1:]


def swap_places(committee: wire.DealtCommittee) -> None:
    first, second = committee.members[0], committee.members[1]
    committee.members[0], committee.members[1] = second, first


def invent(committee: wire.DealtCommittee) -> None:
    committee.members[-1] = "sybil"


def swap_keys(committee: wire.DealtCommittee) -> None:
    for key in committee.keys:
        key.key = bytes(KeyPair.generate().point)


def infinite_key(committee: wire.DealtCommittee) -> None:
    committee.keys[0].key = bytes(33)


def far_place(committee: wire.DealtCommittee) -> None:
    committee.places[-1] = 99


def no_place(committee: wire.DealtCommittee) -> None:
    committee.places[0] = 0


def repeat_place(committee: wire.DealtCommittee) -> None:
    committee.places[1] = committee.places[0]


@pytest.mark.parametrize(
    "change",
    [
        shrink,
        swap_places,
        invent,
        swap_keys,
        infinite_key,
        far_place,
        no_place,
        repeat_place,
    ],
)
@pytest.mark.parametrize("lying", [False, True])
def test_a_committee_that_was_not_drawn_or_not_signed_is_dealt_nothing(
    change: Callable[[wire.DealtCommittee], object], lying: bool
) -> None:
    error = refused(
        fresh_dealing(lying), "deal", wire.DealRequest, committee_with(change)
    )
    assert isinstance(error, ProtocolError | RefusalError)


def test_a_members_key_that_the_server_swapped_is_refused() -> None:
    """Else the server would open the shares dealt to that member."""
    dealing = fresh_dealing(lying=True)
    messages = asks(dealing, "deal").messages
    party = next(iter(messages))

    def swap(committee: wire.DealtCommittee) -> None:
        place = next(
            index for index, name in enumerate(committee.members) if name != party
        )
        committee.keys[place].key = bytes(KeyPair.generate().point)

    body = forged(messages[party], wire.DealRequest, committee_with(swap))
    assert isinstance(refusal(dealing, party, body), AuthenticationError)


def few_dealers(request: wire.CheckRequest) -> None:
    del request.shares[1:]


def dealer_twice(request: wire.CheckRequest) -> None:
    request.shares.add().CopyFrom(request.shares[0])


def unknown_dealer(request: wire.CheckRequest) -> None:
    request.shares[0].statement.dealer = "sybil"


def short_commitments(request: wire.CheckRequest) -> None:
    request.shares[0].commitments = request.shares[0].commitments[:33]


def cancelled_constant(request: wire.CheckRequest) -> None:
    share = request.shares[0]
    rogue = bytes(KeyPair.generate().point - Point.parse(share.statement.constant))
    share.statement.constant = rogue
    share.commitments = rogue + share.commitments[33:]


@pytest.mark.parametrize(
    "change",
    [few_dealers, dealer_twice, unknown_dealer, short_commitments, cancelled_constant],
)
@pytest.mark.parametrize("lying", [False, True])
def test_a_member_holds_no_share_of_a_dealing_that_does_not_hang_together(
    change: Callable[[wire.CheckRequest], object], lying: bool
) -> None:
    dealing = fresh_dealing(lying)
    error = refused(dealing, "check", wire.CheckRequest, change)
    assert isinstance(error, ProtocolError | RefusalError)
    assert dealing.keyrings[NODE].vault.read(dealing.spec.cohort_id) is None


def test_a_dealers_statement_must_be_signed_where_nodes_are_enrolled() -> None:
    def unsign_dealer(request: wire.CheckRequest) -> None:
        request.shares[0].statement.signature = b""

    error = refused(
        fresh_dealing(lying=True), "check", wire.CheckRequest, unsign_dealer
    )
    assert isinstance(error, AuthenticationError)


def test_a_dealing_takes_no_rewards_and_a_cohort_deals_nothing() -> None:
    cohort, dealing = fresh(), fresh_dealing()
    seal, enlist = asks(cohort, "seal").messages[NODE], asks(dealing, "enlist")
    for session, body in (
        (dealing, _moved(seal, dealing)),
        (cohort, _moved(enlist.messages[NODE], cohort)),
    ):
        error = refusal(session, NODE, body)
        assert isinstance(error, WrongContextError)


def _moved(body: bytes, target: Cohort) -> bytes:
    envelope = unwrap(body)
    context = target.server.context  # type: ignore[attr-defined]
    return wrap(envelope.stage, context, "", NODE, envelope.payload)


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
    ask = asks(cohort, "open")
    request = wire.OpenRequest.FromString(unwrap(ask.messages[NODE]).payload)
    held = cohort.keyrings[NODE].vault.read(request.dealing_id)
    assert held is not None
    shares = [one.share for one in wire.MemberState.FromString(held).shares.values()]
    texts = [
        repr(cohort.clients[NODE]),
        repr(cohort.keyrings[NODE]),
        repr(cohort.keyrings[NODE].vault),
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
    body = asks(cohort, "open").messages[NODE]
    dealing_id = wire.OpenRequest.FromString(unwrap(body).payload).dealing_id
    vault = cohort.keyrings[NODE].vault
    assert vault.read(dealing_id) is not None
    cohort.keyrings[NODE].forget_dealing(dealing_id)
    assert vault.read(dealing_id) is None
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
