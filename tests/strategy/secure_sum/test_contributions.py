"""Terms of a seat, and the check of every answer before it is stored."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from tests.support.seated_sums import Person, SeatedRun
from wallflower.protocol.errors import ProtocolError, RefusalError
from wallflower.protocol.secure_sum.context import unwrap, wrap
from wallflower.protocol.secure_sum.sealed.group import KeyPair, Point, times
from wallflower.protocol.secure_sum.session import Ask, SecureSum
from wallflower.protocol.wire.node_pb2 import NodeAnswer, Refusal
from wallflower.protocol.wire.sealed_pb2 import SealAnswer
from wallflower.strategy.secure_sum import server_session
from wallflower.strategy.secure_sum.contributions import SeatTerms

KINDS = [
    pytest.param("open", False, id="open"),
    pytest.param("enrolled", True, id="enrolled"),
    pytest.param("invited", True, id="invited"),
]
Change = Callable[[SealAnswer], object]


def changed(answer: bytes, change: Change) -> bytes:
    """Rewrite a contribution inside its answer, checksum and all."""
    reply = NodeAnswer.FromString(answer)
    envelope = unwrap(reply.answers[0].message)
    sealed = SealAnswer.FromString(envelope.payload)
    change(sealed)
    reply.answers[0].message = wrap(
        envelope.stage,
        envelope.context,
        envelope.sender,
        envelope.receiver,
        sealed.SerializeToString(),
    )
    return reply.SerializeToString()


class Seat:
    """One visitor with a seat and their answer."""

    def __init__(self, run: SeatedRun, cohort_id: str = "cohort-1") -> None:
        self.run = run
        self.terms = SeatTerms(run.cohort(cohort_id).terms, run.trust)
        self.person = run.person()
        self.answer = run.answer(self.person, self.terms.request_for(self.person.name))

    def refusal(self, body: bytes, person: Person | None = None) -> str:
        with pytest.raises(ProtocolError) as caught:
            self.terms.check_answer((person or self.person).name, body)
        return caught.value.code


@pytest.mark.parametrize("late_s", [0, 2_000])  # certificates end after 1,000 s
@pytest.mark.parametrize(("admission", "lying"), KINDS)
def test_checked_answers_add_up_to_the_sum_that_trustees_open(
    admission: str, lying: bool, late_s: int
) -> None:
    """Also where a round takes so long that who answered could not come any more."""
    run = SeatedRun(admission, lying=lying)
    cohort = run.cohort()
    terms, stored = SeatTerms(cohort.terms, run.trust), {}
    for value in range(run.seats):
        person = run.person()
        answer = run.answer(person, terms.request_for(person.name), value)
        stored[person.name] = terms.check_answer(person.name, answer)
    spec = run.spec(cohort.cohort_id)
    run.now += late_s
    session = server_session(
        spec,
        dict.fromkeys(stored, 1),
        trust=run.trust,
        keyring=run.ring,
        contributions=lambda: stored.items(),
    )
    step = session.start()
    while isinstance(step, Ask):
        for member, message in step.messages.items():
            session.receive(member, run.open_sum(member, spec, message))
        step = session.advance()
    assert isinstance(step, SecureSum)
    assert (step.total, step.users) == (sum(range(run.seats)), run.seats)


@pytest.mark.parametrize(("admission", "lying"), KINDS)
def test_a_trustee_opens_one_set_of_a_cohort_and_no_other(
    admission: str, lying: bool
) -> None:
    """The difference of two sets that differ by one person is that person's value."""
    run = SeatedRun(admission, lying=lying, seats=20)
    cohort = run.cohort()
    terms, stored = SeatTerms(cohort.terms, run.trust), {}
    for _ in range(run.seats):
        person = run.person()
        answer = run.answer(person, terms.request_for(person.name))
        stored[person.name] = terms.check_answer(person.name, answer)
    spec, member = run.spec(cohort.cohort_id), next(iter(run.trustees))

    def ask(people: Mapping[str, bytes]) -> bytes:
        session = server_session(
            spec,
            dict.fromkeys(people, 1),
            trust=run.trust,
            keyring=run.ring,
            contributions=lambda: people.items(),
        )
        step = session.start()
        assert isinstance(step, Ask)
        return step.messages[member]

    first, second = ask(stored), ask(dict(list(stored.items())[1:]))
    assert run.open_sum(member, spec, first)
    with pytest.raises(RefusalError) as caught:
        run.open_sum(member, spec, second)
    assert caught.value.code == "cohort-already-answered"


@pytest.mark.parametrize(("admission", "lying"), KINDS)
def test_an_answer_of_one_visitor_is_not_taken_from_another(
    admission: str, lying: bool
) -> None:
    seat = Seat(SeatedRun(admission, lying=lying))
    assert seat.refusal(seat.answer, seat.run.person()) == "wrong-context"


def test_an_answer_in_anothers_name_needs_that_name_on_its_certificate() -> None:
    seat = Seat(SeatedRun("invited", lying=True))
    other = seat.run.person()
    theirs = seat.run.answer(other, seat.terms.request_for(other.name))
    shown = SealAnswer.FromString(
        unwrap(NodeAnswer.FromString(theirs).answers[0].message).payload
    ).certificate
    body = changed(seat.answer, lambda one: setattr(one, "certificate", shown))
    assert seat.refusal(body) == "not-authenticated"


def test_a_malleated_ciphertext_is_not_taken() -> None:
    """One more than the answer says, or re-randomised: both without the secret."""
    seat = Seat(SeatedRun())
    one_more = bytes(KeyPair.generate().point)

    def add_one(answer: SealAnswer) -> None:
        answer.two = bytes(Point.parse(answer.two) + Point.parse(one_more))

    def randomise(answer: SealAnswer) -> None:
        extra = KeyPair.generate()
        assert seat.run.ring.dealt is not None
        answer.one = bytes(Point.parse(answer.one) + extra.point)
        public = seat.run.ring.dealt.public
        answer.two = bytes(Point.parse(answer.two) + times(public, extra.secret))

    for change in (add_one, randomise):
        assert seat.refusal(changed(seat.answer, change)) == "not-proved"


def test_an_unsigned_answer_of_somebody_invited_is_not_taken() -> None:
    seat = Seat(SeatedRun("invited", lying=True))
    body = changed(seat.answer, lambda one: one.ClearField("signature"))
    assert seat.refusal(body) == "not-authenticated"


@pytest.mark.parametrize("users", [0, 2, 1000])
def test_a_seat_counts_one_person(users: int) -> None:
    seat = Seat(SeatedRun())
    body = changed(seat.answer, lambda one: setattr(one, "users", users))
    assert seat.refusal(body) == "wrong-context"


def test_an_answer_to_another_cohort_is_not_taken() -> None:
    run = SeatedRun()
    seat, other = Seat(run), SeatTerms(run.cohort("cohort-2").terms, run.trust)
    theirs = run.answer(seat.person, other.request_for(seat.person.name))
    assert seat.refusal(theirs) == "wrong-context"
    reply = NodeAnswer.FromString(theirs)
    reply.answers[0].task_id = "cohort-1"
    assert seat.refusal(reply.SerializeToString()) == "wrong-context"


def test_a_refusal_is_no_contribution() -> None:
    seat = Seat(SeatedRun())
    reply = NodeAnswer.FromString(seat.answer)
    reply.answers[0].refusal.CopyFrom(Refusal(code="budget-exceeded"))
    assert seat.refusal(reply.SerializeToString()) == "malformed-message"


@pytest.mark.parametrize("lie", ["missing", "garbled", "of another value"])
def test_a_contribution_that_is_not_shown_to_be_in_range_is_not_taken(lie: str) -> None:
    run = SeatedRun(proved=True)
    seat = Seat(run)
    again = run.answer(seat.person, seat.terms.request_for(seat.person.name))
    other = SealAnswer.FromString(
        unwrap(NodeAnswer.FromString(again).answers[0].message).payload
    )

    def spoil(answer: SealAnswer) -> None:
        answer.range = {
            "missing": b"",
            "garbled": b"\x01" * len(answer.range),
            "of another value": other.range,
        }[lie]

    expected = "malformed-message" if lie == "missing" else "not-proved"
    assert seat.refusal(changed(seat.answer, spoil)) == expected
    assert seat.terms.check_answer(seat.person.name, seat.answer)


def test_nothing_is_stored_that_is_not_part_of_the_contribution() -> None:
    """Whoever padded an answer would fill the store and the trustees' messages."""
    seat = Seat(SeatedRun(proved=True))
    stored = seat.terms.check_answer(seat.person.name, seat.answer)
    reply = NodeAnswer.FromString(seat.answer)
    envelope = unwrap(reply.answers[0].message)
    padding = bytes([0x9A, 0x06, 100]) + bytes(100)  # a field that nobody knows
    reply.answers[0].message = wrap(
        envelope.stage,
        envelope.context,
        envelope.sender,
        "",
        envelope.payload + padding,
    )
    padded = reply.SerializeToString()
    assert seat.terms.check_answer(seat.person.name, padded) == stored
    assert SealAnswer.FromString(stored).range == b""
