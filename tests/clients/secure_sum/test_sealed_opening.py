"""Which sets a member opens, and how often."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import pytest

from tests.clients.secure_sum.test_sealed_rules import HONEST, NODE, fresh
from tests.support.client_sessions import client_session
from tests.support.lying_server import refusal
from tests.support.secure_sums import (
    TENTH,
    Cohort,
    asks,
    cohort_spec,
    deal_key,
    forged,
    names,
    open_cohort,
    run_dealing,
)
from wallflower.clients.secure_sum.limits import ClientLimits
from wallflower.protocol.errors import (
    AuthenticationError,
    MalformedMessageError,
    ProtocolError,
    RefusalError,
    ReplayedMessageError,
    WallflowerError,
    WrongContextError,
)
from wallflower.protocol.secure_sum.context import unwrap
from wallflower.protocol.secure_sum.sealed.group import (
    Point,
    base,
)
from wallflower.protocol.secure_sum.session import KeyReady, SecureSum
from wallflower.protocol.secure_sum.threat import Threat
from wallflower.protocol.wire import sealed_pb2 as wire
from wallflower.strategy.secure_sum import ServerKeyring


def refuse_opening(
    cohort: Cohort, change: Callable[[wire.OpenRequest], object]
) -> WallflowerError:
    """Return how NODE, whoever is drawn, refuses to open a set that was changed."""
    body = asks(cohort, "open", NODE).messages[NODE]
    return refusal(cohort, NODE, forged(body, wire.OpenRequest, change))


def test_a_member_opens_a_cohort_once_and_no_overlapping_set_after_it() -> None:
    cohort = fresh()
    ask = asks(cohort, "open", NODE)
    body = ask.messages[NODE]
    answer = cohort.answer(NODE, body)
    assert cohort.clients[NODE].inspect(body).answer().body == answer

    def fewer(request: wire.OpenRequest) -> None:
        request.contributors -= 1
        request.users -= 1
        request.sum = bytes(Point.parse(request.sum) + base(1))

    error = refusal(cohort, NODE, forged(body, wire.OpenRequest, fewer))
    assert isinstance(error, ReplayedMessageError)


def test_a_member_opens_no_second_set_in_a_session_of_its_own_either() -> None:
    cohort = fresh()
    body = asks(cohort, "open", NODE).messages[NODE]
    cohort.answer(NODE, body)
    again = client_session(
        cohort.spec, NODE, None, None, ClientLimits(), cohort.keyrings[NODE]
    )
    with pytest.raises(RefusalError) as caught:
        again.inspect(body).answer()
    assert caught.value.code == "cohort-already-answered"


@pytest.mark.parametrize(
    ("field", "value", "code"),
    [("contributors", 2, "set-too-small"), ("users", 1, "quorum-not-met")],
)
@pytest.mark.parametrize("lying", [False, True])
def test_a_set_below_the_quorum_is_not_opened(
    lying: bool, field: str, value: int, code: str
) -> None:
    error = refuse_opening(
        fresh(lying),
        lambda request: setattr(request, field, value),
    )
    assert isinstance(error, RefusalError)
    assert error.code == code


def test_more_contributors_than_nodes_are_refused() -> None:
    error = refuse_opening(
        fresh(),
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
    error = refuse_opening(fresh(lying=True), change)
    assert isinstance(error, ProtocolError)


def test_contributions_of_another_cohort_are_not_opened_with_this_one() -> None:
    old = fresh(lying=True, cohort_id="old")
    theirs = wire.OpenRequest.FromString(
        unwrap(asks(old, "open", NODE).messages[NODE]).payload
    )

    def transplant(request: wire.OpenRequest) -> None:
        request.sealed[2].CopyFrom(theirs.sealed[2])

    error = refuse_opening(fresh(lying=True), transplant)
    assert isinstance(error, AuthenticationError)


def test_what_was_sealed_under_one_dealing_is_not_opened_under_another() -> None:
    """The same nodes, the same cohort, another set of dealers: another name."""
    cohort = fresh(lying=True)

    def fewer_dealers(request: wire.OpenRequest) -> None:
        del request.dealers[0]

    error = refuse_opening(cohort, fewer_dealers)
    assert isinstance(error, WrongContextError)


def test_a_dealing_of_too_few_dealers_is_not_opened() -> None:
    def one_dealer(request: wire.OpenRequest) -> None:
        del request.dealers[1:]

    error = refuse_opening(fresh(), one_dealer)
    assert isinstance(error, RefusalError)
    assert error.code == "too-few-dealers"


def test_dealers_listed_twice_or_out_of_order_are_refused() -> None:
    def repeat(request: wire.OpenRequest) -> None:
        request.dealers.append(request.dealers[0])

    error = refuse_opening(fresh(), repeat)
    assert isinstance(error, MalformedMessageError)


def test_a_dealer_whose_share_this_member_does_not_hold_is_refused() -> None:
    def stranger(request: wire.OpenRequest) -> None:
        request.dealers.append("zzz")

    error = refuse_opening(fresh(), stranger)
    assert isinstance(error, RefusalError)
    assert error.code == "no-share"


def test_a_node_without_a_share_says_so() -> None:
    def elsewhere(request: wire.OpenRequest) -> None:
        request.dealing_id = "another"

    error = refuse_opening(fresh(), elsewhere)
    assert isinstance(error, RefusalError)
    assert error.code == "not-a-member"


@pytest.mark.parametrize("summed", [b"", bytes(33), b"\x02" + b"\xff" * 32])
def test_a_sum_that_is_no_point_is_refused(summed: bytes) -> None:
    def spoil(request: wire.OpenRequest) -> None:
        request.sum = summed

    error = refuse_opening(fresh(), spoil)
    assert isinstance(error, MalformedMessageError)


def test_a_key_dealt_for_a_milder_threat_opens_nothing() -> None:
    cohort = fresh()
    state = cohort.keyrings[NODE].key_shares
    ask = asks(cohort, "open", NODE)
    request = wire.OpenRequest.FromString(unwrap(ask.messages[NODE]).payload)
    held = state.get(request.dealing_id)
    assert held is not None
    member = wire.MemberState.FromString(held)
    member.threat = Threat(Fraction(0), TENTH).to_wire().SerializeToString()
    state[request.dealing_id] = member.SerializeToString()
    assert isinstance(refusal(cohort, NODE, ask.messages[NODE]), WrongContextError)


def test_a_member_that_is_in_no_cohort_opens_it_all_the_same() -> None:
    """Members serve the run; their own users may be all used, or never asked."""
    parties, rings, ring = names(9), {}, ServerKeyring("run-1")  # type: ignore[var-annotated]
    assert isinstance(
        run_dealing(deal_key("run-1", HONEST, parties, rings, ring)), KeyReady
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


def opened_before() -> Cohort:
    """A run's second cohort: NODE has helped to open a sum under the key."""
    parties, rings, ring = names(6), {}, ServerKeyring("run-1")  # type: ignore[var-annotated]
    run_dealing(deal_key("run-1", HONEST, parties, rings, ring))
    for number in (1, 2):
        spec = cohort_spec(
            "sealed", parties, threat=HONEST, cohort_id=f"cohort-{number}"
        )
        cohort = open_cohort(spec, parties, keyrings=rings, server_keyring=ring)
        if number == 1:
            cohort.clients[NODE].inspect(
                asks(cohort, "open", NODE).messages[NODE]
            ).answer()
    assert rings[NODE].opening_keys
    return cohort


def drop_a_dealer(request: wire.OpenRequest) -> None:
    del request.dealers[0]


def rename_the_dealing(request: wire.OpenRequest) -> None:
    request.dealing = bytes(32)


@pytest.mark.parametrize(
    ("change", "kind"),
    [(drop_a_dealer, RefusalError), (rename_the_dealing, WrongContextError)],
)
def test_a_member_that_opened_before_checks_what_differs(
    change: Callable[[wire.OpenRequest], object], kind: type[Exception]
) -> None:
    error = refuse_opening(opened_before(), change)
    assert isinstance(error, kind)


def test_shares_that_changed_since_the_last_opening_are_added_up_anew() -> None:
    cohort = opened_before()
    ask = asks(cohort, "open", NODE)
    request = wire.OpenRequest.FromString(unwrap(ask.messages[NODE]).payload)
    key_shares = cohort.keyrings[NODE].key_shares
    body = key_shares.get(request.dealing_id)
    assert body is not None
    held = wire.MemberState.FromString(body)
    held.shares[request.dealers[0]].statement = bytes(32)
    key_shares[request.dealing_id] = held.SerializeToString()
    assert isinstance(refusal(cohort, NODE, ask.messages[NODE]), WrongContextError)


@pytest.mark.parametrize("way", ["closed", "gone"])
def test_no_added_up_key_outlives_its_shares(way: str) -> None:
    cohort = opened_before()
    ring, body = cohort.keyrings[NODE], asks(cohort, "open", NODE).messages[NODE]
    (dealing_id,) = ring.opening_keys
    if way == "closed":
        ring.forget_dealing(dealing_id)
    else:  # by another process of the node
        del ring.key_shares[dealing_id]
        refusal(cohort, NODE, body)
    assert ring.opening_keys == {}
