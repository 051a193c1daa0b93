"""What a dealer and a member insist on before there is a key."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import pytest

from tests.clients.secure_sum.test_sealed_rules import (
    NODE,
    fresh,
    fresh_dealing,
    refused,
)
from tests.support.client_sessions import client_session
from tests.support.lying_server import LYING, refusal
from tests.support.secure_sums import (
    Cohort,
    asks,
    deal_key,
    forged,
    names,
    run_dealing,
)
from wallflower.clients.secure_sum.limits import ClientLimits
from wallflower.protocol.errors import (
    AuthenticationError,
    MalformedMessageError,
    ProtocolError,
    RefusalError,
    WrongContextError,
)
from wallflower.protocol.secure_sum.context import unwrap, wrap
from wallflower.protocol.secure_sum.sealed.group import (
    KeyPair,
    Point,
)
from wallflower.protocol.secure_sum.session import Void
from wallflower.protocol.wire import sealed_pb2 as wire
from wallflower.strategy.secure_sum import ServerKeyring


def test_a_lying_server_needs_an_enrolment_key_already_when_dealing() -> None:
    ring = ServerKeyring("run-1")
    dealing = deal_key("run-1", LYING, names(6), {}, ring)
    assert isinstance(run_dealing(dealing), Void)
    assert set(dealing.refusals.values()) == {"enrolment-required"}


@pytest.mark.parametrize(
    ("limits", "code"),
    [
        (ClientLimits(minimum_parties=7), "cohort-too-small"),
        (ClientLimits(minimum_corrupt=Fraction(1, 5)), "threat-too-weak"),
        (ClientLimits(require_malicious=True), "threat-too-weak"),
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
    share = next(one for one in request.shares if one.sealed)
    rogue = bytes(KeyPair.generate().point - Point.parse(share.commitments[:33]))
    share.commitments = rogue + share.commitments[33:]


@pytest.mark.parametrize(
    "change",
    [
        few_dealers,
        dealer_twice,
        unknown_dealer,
        short_commitments,
        cancelled_constant,
    ],
)
@pytest.mark.parametrize("lying", [False, True])
def test_a_member_holds_no_share_of_a_dealing_that_does_not_hang_together(
    change: Callable[[wire.CheckRequest], object], lying: bool
) -> None:
    dealing = fresh_dealing(lying)
    error = refused(dealing, "check", wire.CheckRequest, change)
    assert isinstance(error, ProtocolError | RefusalError)
    assert dealing.keyrings[NODE].key_shares.get(dealing.spec.cohort_id) is None


@pytest.mark.parametrize("what", ["sealed", "path"])
def test_a_seal_that_the_server_altered_is_refused_and_not_complained_about(
    what: str,
) -> None:
    """A complaint would hand the server the point that opens the dealer's true seal.

    With every seal altered it would have every share of every member, and the key.
    """

    def alter(request: wire.CheckRequest) -> None:
        for share in request.shares:
            setattr(share, what, bytes(len(getattr(share, what))))

    dealing = fresh_dealing(lying=True)
    error = refused(dealing, "check", wire.CheckRequest, alter)
    assert isinstance(error, MalformedMessageError)


def test_a_member_does_not_take_another_dealing_for_its_own() -> None:
    dealing = fresh_dealing()
    messages = asks(dealing, "check").messages
    request = wire.CheckRequest.FromString(unwrap(messages[NODE]).payload)
    dealer = request.shares[0].statement.dealer

    def replace(request: wire.CheckRequest) -> None:
        own = next(s for s in request.shares if s.statement.dealer == dealer)
        own.statement.rest = bytes(32)

    body = forged(messages[dealer], wire.CheckRequest, replace)
    error = refusal(dealing, dealer, body)
    assert isinstance(error, WrongContextError)
    assert "did not deal" in str(error)


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
