"""Rogue dealers are named, and false complaints exclude their authors alone."""

from __future__ import annotations

from collections.abc import Callable
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
)
from wallflower.protocol.errors import ProtocolError
from wallflower.protocol.secure_sum.envelope import unwrap, wrap
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
    Dealt,
    SecureSum,
    Void,
)
from wallflower.protocol.secure_sum.threat import Threat
from wallflower.protocol.wire import sealed_pb2 as wire


def crooked(f: Any, x: int, order: int = ORDER) -> int:
    """Every third member's share is off by one, sealed perfectly."""
    return HONEST_EVALUATE(f, x) + (x % 3 == 0)


HONEST_EVALUATE = feldman.evaluate


def deal_with_rogues(
    run: Run, rogues: set[str], monkeypatch: pytest.MonkeyPatch
) -> tuple[Cohort, Dealt | Void]:
    dealing = run.dealing()
    step = dealing.server.start()
    while isinstance(step, Ask):
        for party, body in step.messages.items():
            lies = step.stage == "deal" and party in rogues
            evaluate = crooked if lies else HONEST_EVALUATE
            monkeypatch.setattr(feldman, "evaluate", evaluate)
            dealing.server.receive(party, dealing.answer(party, body))
        step = dealing.server.advance()
    assert not isinstance(step, SecureSum)
    return dealing, step


@pytest.mark.parametrize("threat", [HONEST, LYING])
def test_a_dealer_of_wrong_shares_is_named_and_its_part_left_out(
    threat: Threat, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(20, threat)
    run.ring.wary = True  # everybody deals
    rogue = "node-00007"
    dealing, step = deal_with_rogues(run, {rogue}, monkeypatch)
    assert isinstance(step, Dealt)
    assert rogue not in step.dealers
    assert rogue not in step.members
    assert named(dealing) == {rogue: "wrong-share"}
    check_sum(run)


def test_after_a_dealing_that_rogues_spoilt_everybody_deals(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Three of twenty deal at first; a rogue among them is one too many."""
    run = Run(20)
    rogues = set(list(run.parties)[:2])
    spoilt = 0
    for _ in range(20):  # until the draw has put a rogue among the first
        dealing, step = deal_with_rogues(run, rogues, monkeypatch)
        if isinstance(step, Void):
            assert step.code == "too-few-dealers"
            assert set(named(dealing)) <= rogues
            spoilt += 1
            break
        run.ring.dealt = None
    assert spoilt
    dealing, step = deal_with_rogues(run, rogues, monkeypatch)
    assert isinstance(step, Dealt)
    assert named(dealing) == dict.fromkeys(rogues, "wrong-share")
    assert len(step.dealers) == 18
    check_sum(run)


def test_seals_that_open_for_nobody_are_a_dealers_fault() -> None:
    run = Run(20)
    run.ring.wary = True
    dealing = run.dealing()
    rogue = drawn(dealing)[0]

    def garble(answer: wire.DealAnswer) -> None:
        answer.sealed = bytes(len(answer.sealed))

    step, refused = play(dealing, "deal", {rogue: (wire.DealAnswer, garble)})
    assert isinstance(step, Dealt)
    assert refused == {}
    assert named(dealing) == {rogue: "wrong-share"}
    check_sum(run)


def fewer_commitments(answer: wire.DealAnswer) -> None:
    answer.commitments = answer.commitments[:-33]


def more_commitments(answer: wire.DealAnswer) -> None:
    answer.commitments += answer.commitments[:33]


def other_constant(answer: wire.DealAnswer) -> None:
    answer.statement.constant = bytes(base(9))


def other_commitment(answer: wire.DealAnswer) -> None:
    answer.commitments = answer.commitments[:-33] + bytes(base(9))


def infinite_commitment(answer: wire.DealAnswer) -> None:
    answer.commitments = answer.commitments[:-33] + bytes(33)


def cancelling_constant(answer: wire.DealAnswer) -> None:
    rogue = bytes(KeyPair.generate().point - Point.parse(answer.statement.constant))
    answer.statement.constant = rogue
    answer.commitments = rogue + answer.commitments[33:]


def missing_seal(answer: wire.DealAnswer) -> None:
    answer.sealed = answer.sealed[:-48]


def anothers_name(answer: wire.DealAnswer) -> None:
    answer.statement.dealer = "node-00000x"


@pytest.mark.parametrize("threat", [HONEST, LYING])
@pytest.mark.parametrize(
    "change",
    [
        fewer_commitments,
        more_commitments,
        other_constant,
        other_commitment,
        infinite_commitment,
        cancelling_constant,
        missing_seal,
        anothers_name,
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
    assert isinstance(step, Dealt)
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


def test_too_few_honest_dealers_give_no_key_and_name_the_others() -> None:
    run = Run(20)
    dealing = run.dealing()
    rogues = drawn(dealing)[:3]

    def garble(answer: wire.DealAnswer) -> None:
        answer.sealed = bytes(len(answer.sealed))

    step, _ = play(dealing, "deal", dict.fromkeys(rogues, (wire.DealAnswer, garble)))
    assert isinstance(step, Void)
    assert step.code == "too-few-dealers"
    assert all(rogue in step.detail for rogue in rogues)
    assert run.ring.dealt is None


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
    assert isinstance(step, Dealt)
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
    client._check(unwrap(ask.messages[member]))
    sizes, holders = client._seats
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
    assert sizes.accepted == 3


def test_a_dealer_accused_twice_in_one_answer_is_malformed() -> None:
    dealing = Run(12).dealing()
    order = drawn(dealing)

    def twice(answer: wire.CheckAnswer) -> None:
        for _ in range(2):
            answer.complaints.add(dealer=order[0])

    _, refused = play(dealing, "check", {order[-1]: (wire.CheckAnswer, twice)})
    assert refused == {order[-1]: "malformed-message"}
