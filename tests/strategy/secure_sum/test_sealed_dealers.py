"""Rogue dealers are named, and false complaints exclude their authors alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tests.strategy.secure_sum.test_sealed_server import (
    HONEST,
    LYING,
    Change,
    Run,
    check_sum,
    drawn,
    named,
    play,
)
from tests.support.secure_sums import (
    Cohort,
    asks,
    forged,
)
from wallflower.protocol.errors import ProtocolError
from wallflower.protocol.secure_sum.context import unwrap, wrap
from wallflower.protocol.secure_sum.sealed import feldman
from wallflower.protocol.secure_sum.sealed.group import (
    ORDER,
    KeyPair,
    Point,
    base,
    scalar_bytes,
)
from wallflower.protocol.secure_sum.session import (
    Ask,
    KeyReady,
    SecureSum,
    Void,
)
from wallflower.protocol.secure_sum.threat import Threat
from wallflower.protocol.wire import sealed_pb2 as wire


def crooked(f: Any, x: int, order: int = ORDER) -> int:
    """Every third member's share is off by one, sealed perfectly."""
    return HONEST_EVALUATE(f, x) + (x % 3 == 0)


HONEST_EVALUATE = feldman.evaluate


def cancelling(f: Any, x: int, order: int = ORDER) -> int:
    """As wrong as `crooked`, the other way."""
    return HONEST_EVALUATE(f, x) - (x % 3 == 0)


def beyond(f: Any, x: int, order: int = ORDER) -> int:
    """No share at all: what is sealed is no scalar."""
    return 2**256 - 1


def deal_with_rogues(
    dealing: Cohort, rogues: Mapping[str, Any], monkeypatch: pytest.MonkeyPatch
) -> KeyReady | Void:
    """Carry a dealing out; rogues evaluate their polynomials in their own way."""
    step = dealing.server.start()
    while isinstance(step, Ask):
        for party, body in step.messages.items():
            evaluate = HONEST_EVALUATE
            if step.stage == "deal":
                evaluate = rogues.get(party, HONEST_EVALUATE)
            monkeypatch.setattr(feldman, "evaluate", evaluate)
            dealing.server.receive(party, dealing.answer(party, body))
        step = dealing.server.advance()
    assert not isinstance(step, SecureSum)
    return step


@pytest.mark.parametrize("threat", [HONEST, LYING])
@pytest.mark.parametrize("evaluate", [crooked, beyond])
def test_a_dealer_of_wrong_shares_is_named_and_its_part_left_out(
    evaluate: Any, threat: Threat, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(20, threat)
    run.ring.wary = True  # everybody deals
    rogue, dealing = "node-00007", run.dealing()
    step = deal_with_rogues(dealing, {rogue: evaluate}, monkeypatch)
    assert isinstance(step, KeyReady)
    assert rogue not in step.dealers
    assert rogue not in step.members
    assert named(dealing) == {rogue: "wrong-share"}
    check_sum(run)


def test_wrong_shares_that_cancel_are_found_where_fewer_may_be_accepted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else a member's key would be wrong as soon as one of the two is left out."""
    run = Run(20)
    run.ring.wary = True
    rogues = {"node-00007": crooked, "node-00011": cancelling}
    dealing = run.dealing()
    step = deal_with_rogues(dealing, rogues, monkeypatch)
    assert isinstance(step, KeyReady)
    assert named(dealing) == dict.fromkeys(rogues, "wrong-share")
    check_sum(run)


def test_a_member_never_takes_a_sum_for_shares_of_which_fewer_may_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Even where the server says what the sum of all of them would be."""
    run = Run(20)
    run.ring.wary = True
    rogues = {"node-00007": crooked, "node-00011": cancelling}
    dealing = run.dealing()
    ask = dealing.server.start()
    while isinstance(ask, Ask) and ask.stage != "check":
        for party, body in ask.messages.items():
            evaluate = rogues.get(party, HONEST_EVALUATE)
            monkeypatch.setattr(feldman, "evaluate", evaluate)
            dealing.server.receive(party, dealing.answer(party, body))
        ask = dealing.server.advance()
    assert isinstance(ask, Ask)
    places = dealing.server._seats.places  # type: ignore[attr-defined]
    member = next(p for p in places if places[p] % 3 == 0 and p not in rogues)

    def tell(request: wire.CheckRequest) -> None:
        threshold = len(request.shares[0].commitments) // 33
        columns = [
            feldman.read_commitments(one.commitments, threshold)
            for one in request.shares
        ]
        point = feldman.share_point(feldman.add_up(columns), request.place)
        request.key = bytes(point)

    body = forged(ask.messages[member], wire.CheckRequest, tell)
    answer = unwrap(dealing.answer(member, body))
    complaints = wire.CheckAnswer.FromString(answer.payload).complaints
    assert {one.dealer for one in complaints} == set(rogues)


def test_wrong_shares_that_cancel_do_no_harm_where_all_dealers_make_the_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = Run(20)
    dealing = run.dealing()
    rogues = dict(zip(drawn(dealing), (crooked, cancelling), strict=False))
    step = deal_with_rogues(dealing, rogues, monkeypatch)
    assert isinstance(step, KeyReady)
    assert set(rogues) < set(step.dealers)
    assert named(dealing) == {}
    check_sum(run)


def test_after_a_dealing_that_rogues_spoilt_everybody_deals(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Three of twenty deal at first; a rogue among them is one too many."""
    run = Run(20)
    dealing = run.dealing()
    rogues = dict.fromkeys(drawn(dealing)[:2], crooked)
    step = deal_with_rogues(dealing, rogues, monkeypatch)
    assert isinstance(step, Void)
    assert step.code == "too-few-dealers"
    assert all(rogue in step.detail for rogue in rogues)
    assert run.ring.dealt is None
    dealing = run.dealing()
    step = deal_with_rogues(dealing, rogues, monkeypatch)
    assert isinstance(step, KeyReady)
    assert named(dealing) == dict.fromkeys(rogues, "wrong-share")
    assert len(step.dealers) == 18
    check_sum(run)


def fewer_commitments(answer: wire.DealAnswer) -> None:
    answer.commitments = answer.commitments[:-33]


def more_commitments(answer: wire.DealAnswer) -> None:
    answer.commitments += answer.commitments[:33]


def other_commitment(answer: wire.DealAnswer) -> None:
    answer.commitments = answer.commitments[:-33] + bytes(base(9))


def infinite_commitment(answer: wire.DealAnswer) -> None:
    answer.commitments = answer.commitments[:-33] + bytes(33)


def cancelling_constant(answer: wire.DealAnswer) -> None:
    rogue = bytes(KeyPair.generate().point - Point.parse(answer.commitments[:33]))
    answer.commitments = rogue + answer.commitments[33:]


def missing_seal(answer: wire.DealAnswer) -> None:
    answer.sealed = answer.sealed[:-32]


def other_seals(answer: wire.DealAnswer) -> None:
    answer.sealed = bytes(len(answer.sealed))


@pytest.mark.parametrize("threat", [HONEST, LYING])
@pytest.mark.parametrize(
    "change",
    [
        fewer_commitments,
        more_commitments,
        other_commitment,
        infinite_commitment,
        cancelling_constant,
        missing_seal,
        other_seals,
    ],
)
def test_a_dealing_that_does_not_hang_together_is_refused_at_once(
    change: Change, threat: Threat
) -> None:
    run = Run(12, threat)
    dealing = run.dealing()
    rogue = drawn(dealing)[0]
    step, refused = play(dealing, "deal", {rogue: (wire.DealAnswer, change)})
    assert list(refused) == [rogue]
    assert isinstance(step, KeyReady)
    assert rogue not in step.dealers
    check_sum(run)


def test_a_dealer_that_repeats_anothers_dealing_is_refused() -> None:
    run = Run(12)
    dealing = run.dealing()
    ask = asks(dealing, "deal")
    first, second = list(ask.messages)[:2]
    answers = {
        party: dealing.answer(party, body) for party, body in ask.messages.items()
    }
    stolen = unwrap(answers[first])
    dealing.server.receive(first, answers[first])
    with pytest.raises(ProtocolError):
        dealing.server.receive(
            second, wrap(stolen.stage, stolen.context, second, "", stolen.payload)
        )


def bare_complaint(dealer: str) -> Change:
    def change(answer: wire.CheckAnswer) -> None:
        answer.complaints.add(dealer=dealer)

    return change


def invented_complaint(dealer: str) -> Change:
    def change(answer: wire.CheckAnswer) -> None:
        answer.complaints.add(
            dealer=dealer, shared=bytes(base(5)), proof=scalar_bytes(1) * 2
        )

    return change


@pytest.mark.parametrize("complaint", [bare_complaint, invented_complaint])
@pytest.mark.parametrize("threat", [HONEST, LYING])
def test_false_complaints_exclude_their_authors_and_no_dealer(
    complaint: Callable[[str], Change], threat: Threat
) -> None:
    """Else colluding members would exclude every honest dealer."""
    run = Run(20, threat)
    dealing = run.dealing()
    order = drawn(dealing)
    liars = {p: (wire.CheckAnswer, complaint(order[0])) for p in order[-2:]}
    step, refused = play(dealing, "check", liars)
    assert isinstance(step, KeyReady)
    assert order[0] in step.dealers
    assert refused == dict.fromkeys(liars, "false-complaint")
    assert not set(liars) & set(step.members)
    check_sum(run)


def test_an_honest_complaint_about_a_good_share_is_false_too() -> None:
    """Even with the right point and proof: what is in the seal decides."""
    run = Run(12)
    dealing = run.dealing()
    ask = asks(dealing, "check")
    member = list(ask.messages)[-1]
    client: Any = dealing.clients[member]
    request = wire.CheckRequest.FromString(unwrap(ask.messages[member]).payload)
    share = request.shares[0]
    part = client._part
    envelope = unwrap(ask.messages[member])
    sizes, seats = client._draw_seats(request.roster, envelope)
    _, holders = part.seated(request, client.context, sizes, seats)
    terms = dealing.server._terms  # type: ignore[attr-defined]
    own = next(one for one in holders if one.party == member)
    complaint = part._complaint(share, terms, own)
    body = wrap(
        unwrap(ask.messages[member]).stage,
        client.context,
        member,
        "",
        wire.CheckAnswer(complaints=[complaint]).SerializeToString(),
    )
    with pytest.raises(ProtocolError, match="without showing"):
        dealing.server.receive(member, body)


def test_a_dealer_accused_twice_in_one_answer_is_malformed() -> None:
    dealing = Run(12).dealing()
    order = drawn(dealing)

    def twice(answer: wire.CheckAnswer) -> None:
        for _ in range(2):
            answer.complaints.add(dealer=order[0])

    _, refused = play(dealing, "check", {order[-1]: (wire.CheckAnswer, twice)})
    assert refused == {order[-1]: "malformed-message"}
