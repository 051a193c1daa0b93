"""Polls of people who arrive, honest ones and attacks, at workers on a real store."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.seat_server import SeatServer, answer, arrive
from tests.support.seated_sums import Person, SeatedRun
from tests.support.secure_sums import NOW
from wallflower.protocol.errors import UnavailableError
from wallflower.protocol.identity.enrolment import EnrolmentKey, NodeIdentity, Trust
from wallflower.protocol.refusals import RefusalCode
from wallflower.protocol.visitors import (
    LARGEST_POLL,
    Invitation,
    arrival_transcript,
)
from wallflower.protocol.wire.visitors_pb2 import PollRefused, VisitorPoll, VisitorReply
from wallflower.strategy.store.seats import AnswerResult, NoFreeSeat, SeatedCohort
from wallflower.strategy.transport.visitors.handler import VisitorHandler, VisitorRun

Opened = Callable[..., SeatServer]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Opened]:
    """Open one run with seats, of whatever admission."""
    made: list[SeatServer] = []

    def build(
        admission: str = "open", arms: int = 1, most: int = 1, proved: bool = False
    ) -> SeatServer:
        run = SeatedRun(admission, lying=admission != "open", proved=proved)
        made.append(SeatServer(tmp_path / "run", run, most))
        made[-1].open_round(arms)
        return made[-1]

    yield build
    for server in made:
        server.close()


def refused(code: str, *, again: bool = False) -> VisitorReply:
    return VisitorReply(refused=PollRefused(code=code, again=again))


# -- arriving --------------------------------------------------------------------


@pytest.mark.parametrize("admission", ["open", "enrolled", "invited"])
async def test_whoever_may_come_gets_a_seat_answers_and_is_counted(
    opened: Opened, admission: str
) -> None:
    server = opened(admission)
    worker, person = server.worker(), server.run.person()
    seat = (await arrive(worker, person)).seat
    assert list(seat.arms) == ["red", "green", "blue"]
    reply = await answer(worker, person, server.run.answer(person, seat.request))
    assert reply.WhichOneof("kind") == "taken"
    assert list(server.stored("cohort-0")) == [person.name]


async def test_the_same_arrival_has_the_same_seat_at_every_worker(
    opened: Opened,
) -> None:
    server = opened(arms=3)
    person = server.run.person()
    replies = [await arrive(server.worker(), person) for _ in range(3)]
    assert replies[0].WhichOneof("kind") == "seat"
    assert replies[1:] == replies[:1] * 2


async def test_one_invitation_is_one_seat_however_many_workers_see_it(
    opened: Opened,
) -> None:
    server = opened("invited", arms=3)
    invited, workers = server.run.person(), [server.worker() for _ in range(2)]
    twins = [
        Person(invited.name, invited.identity, secrets.token_bytes(16))
        for _ in range(10)
    ]
    replies = await asyncio.gather(
        *(arrive(workers[place % 2], twin) for place, twin in enumerate(twins))
    )
    kinds = [reply.WhichOneof("kind") for reply in replies]
    assert sorted(kinds) == ["no_seat"] * 9 + ["seat"]
    shown = next(reply.seat for reply in replies if reply.WhichOneof("kind") == "seat")
    (arm,) = {r.no_seat.arm_name for r in replies if r.WhichOneof("kind") == "no_seat"}
    assert arm.encode() in shown.request  # what they saw stays what they see
    assert sum(c.taken for c in server.register.count_seats().values()) == 1


@pytest.mark.parametrize(
    "forge",
    [
        pytest.param(lambda p: setattr(p, "arrival", bytes(16)), id="arrival"),
        pytest.param(lambda p: setattr(p, "signature", b""), id="unsigned"),
        pytest.param(lambda p: setattr(p, "signature", bytes(64)), id="zeros"),
        pytest.param(lambda p: setattr(p, "certificate", b""), id="no certificate"),
        pytest.param(lambda p: setattr(p, "visitor", "somebody"), id="other name"),
    ],
)
async def test_an_arrival_that_is_not_as_it_was_signed_is_refused(
    opened: Opened, forge: Callable[[VisitorPoll], None]
) -> None:
    server = opened("invited")
    poll = server.run.person().arriving()
    forge(poll)
    result = await server.worker().handle(poll.SerializeToString())
    reply = VisitorReply.FromString(result.reply)
    assert reply.refused.code in {"not-authenticated", "malformed-message"}
    assert result.blamed
    assert server.register.count_seats()["cohort-0"].taken == 0


async def test_what_an_invited_person_signed_for_one_run_is_good_for_no_other(
    opened: Opened,
) -> None:
    """An operator of two experiments cannot bring somebody from one to the other."""
    server = opened("invited")
    poll = server.run.person().arriving()
    other = VisitorRun("run-2", server.known_run.arms, "invited", server.run.trust)
    worker = VisitorHandler(other, server.queue(), server.clock)
    result = await worker.handle(poll.SerializeToString())
    assert VisitorReply.FromString(result.reply) == refused("wrong-run")
    poll.run_id = "run-2"
    result = await worker.handle(poll.SerializeToString())
    assert VisitorReply.FromString(result.reply) == refused("not-authenticated")


async def test_an_arrival_signed_by_the_thief_of_a_certificate_is_refused(
    opened: Opened,
) -> None:
    server = opened("invited")
    poll = server.run.person().arriving()
    poll.signature = NodeIdentity.generate(poll.visitor).sign(arrival_transcript(poll))
    result = await server.worker().handle(poll.SerializeToString())
    assert VisitorReply.FromString(result.reply) == refused("not-authenticated")


@pytest.mark.parametrize("flaw", ["other inviter", "expired", "revoked", "enrolled"])
async def test_a_certificate_that_is_not_good_here_is_refused(
    opened: Opened, flaw: str
) -> None:
    server = opened("invited")
    inviter = EnrolmentKey.generate() if flaw == "other inviter" else server.run.inviter
    until = NOW - 1 if flaw == "expired" else NOW + 1000
    identity = Invitation.issue(inviter, not_after=until).identity
    if flaw == "enrolled":
        identity = server.run.enrolment.identity("person")
    assert identity.certificate is not None
    revoked = {identity.certificate.serial} if flaw == "revoked" else set[int]()
    trust = Trust(server.run.inviter.public_key, server.clock, revoked)
    known_run = VisitorRun("run-1", server.known_run.arms, "invited", trust)
    worker = VisitorHandler(known_run, server.queue(), server.clock)
    person = Person(identity.node_id, identity, bytes(16))
    assert await arrive(worker, person) == refused("not-authenticated")


async def test_an_invitation_that_ends_while_its_seat_is_taken_is_good_for_the_answer(
    opened: Opened,
) -> None:
    """Else a seat is lost, and where the server may lie a sum, for nobody's fault."""
    server = opened("invited")
    identity = Invitation.issue(server.run.inviter, not_after=NOW + 10).identity
    trust = Trust(server.run.inviter.public_key, server.clock)
    known_run = VisitorRun("run-1", server.known_run.arms, "invited", trust)
    worker = VisitorHandler(known_run, server.queue(), server.clock)
    person = Person(identity.node_id, identity, bytes(16))
    seat = (await arrive(worker, person)).seat
    server.now = NOW + 20
    assert await arrive(worker, person) == refused("not-authenticated")
    reply = await answer(worker, person, server.run.answer(person, seat.request))
    assert reply.WhichOneof("kind") == "taken"


async def test_where_anybody_may_come_names_are_drawn_and_nothing_is_signed(
    opened: Opened,
) -> None:
    server = opened("open")
    worker = server.worker()
    for name in ("me", "A" * 32, "a" * 31, "a" * 33, "a" * 31 + "\n"):
        person = Person(name, None, bytes(16))
        assert await arrive(worker, person) == refused("malformed-message")
    signed = Person("a" * 32, NodeIdentity.generate("a" * 32), bytes(16))
    assert await arrive(worker, signed) == refused("malformed-message")


@pytest.mark.parametrize("length", [0, 15, 17])
async def test_an_arrival_has_sixteen_bytes(opened: Opened, length: int) -> None:
    server = opened()
    poll = server.run.person().arriving()
    poll.arrival = bytes(length)
    result = await server.worker().handle(poll.SerializeToString())
    assert VisitorReply.FromString(result.reply) == refused("malformed-message")


async def test_a_poll_of_another_run_or_version_is_refused(opened: Opened) -> None:
    server = opened()
    worker, poll = server.worker(), server.run.person().arriving("run-2")
    result = await worker.handle(poll.SerializeToString())
    assert VisitorReply.FromString(result.reply) == refused("wrong-run")
    poll.version = 2
    result = await worker.handle(poll.SerializeToString())
    assert VisitorReply.FromString(result.reply) == refused("malformed-message")


async def test_without_a_free_seat_an_arm_is_named_and_nobody_is_recorded(
    opened: Opened,
) -> None:
    server = opened()
    worker = server.worker()
    for _ in range(server.run.seats):
        await arrive(worker, server.run.person())
    server.register.show_unmeasured(2, "no-free-seat")
    late = await arrive(worker, server.run.person())
    assert (late.no_seat.arm, late.no_seat.arm_name) == (2, "blue")
    assert late.no_seat.reason == "no-free-seat"
    assert server.register.count_seats()["cohort-0"].taken == server.run.seats


# -- answering -------------------------------------------------------------------


async def test_an_answer_sent_again_is_counted_once_and_a_second_one_is_refused(
    opened: Opened,
) -> None:
    server = opened()
    worker, person = server.worker(), server.run.person()
    seat = (await arrive(worker, person)).seat
    first, other = (server.run.answer(person, seat.request, v) for v in (1, 2))
    assert (await answer(worker, person, first)).WhichOneof("kind") == "taken"
    assert (await answer(server.worker(), person, first)).WhichOneof("kind") == "taken"
    assert await answer(worker, person, other) == refused("replayed-message")
    assert len(server.stored("cohort-0")) == 1


async def test_nobody_answers_for_a_cohort_whose_arm_they_were_not_shown(
    opened: Opened,
) -> None:
    """Well-formed, signed and proved for the other cohort, which it names."""
    server = opened("invited", arms=2)
    worker, person = server.worker(), server.run.person()
    seat = (await arrive(worker, person)).seat
    shown = 0 if b"cohort-0" in seat.request else 1
    other = server.terms(f"cohort-{1 - shown}").request_for(person.name)
    reply = await answer(worker, person, server.run.answer(person, other))
    assert reply == refused("no-seat")
    assert server.stored(f"cohort-{1 - shown}") == {}


async def test_nobody_answers_without_a_seat_or_with_anothers(opened: Opened) -> None:
    server = opened()
    worker, seated, stranger = server.worker(), server.run.person(), server.run.person()
    await arrive(worker, seated)
    request = server.terms("cohort-0").request_for(stranger.name)
    theirs = server.run.answer(stranger, request)
    assert await answer(worker, stranger, theirs) == refused("no-seat")
    thief = Person(stranger.name, None, seated.arrival)
    assert await answer(worker, thief, theirs) == refused("no-seat")
    assert await answer(worker, seated, theirs) == refused("wrong-context")
    assert server.stored("cohort-0") == {}


async def test_after_the_cohort_is_closed_no_answer_is_taken(opened: Opened) -> None:
    server = opened()
    worker, fresh, person = server.worker(), server.worker(), server.run.person()
    seat = (await arrive(worker, person)).seat
    body = server.run.answer(person, seat.request)
    assert server.stored("cohort-0") == {}
    assert await answer(worker, person, body) == refused("too-late")
    assert await answer(fresh, person, body) == refused("too-late")


async def test_after_the_last_moment_neither_terms_nor_answers_travel(
    opened: Opened,
) -> None:
    server = opened()
    worker, person = server.worker(), server.run.person()
    seat = (await arrive(worker, person)).seat
    server.now = NOW + 1001
    body = server.run.answer(person, seat.request)
    assert await answer(worker, person, body) == refused("too-late")
    again = await arrive(worker, person)
    assert again.no_seat.reason == "cohort-closed"


@pytest.mark.parametrize("proved", [False, True])
@pytest.mark.parametrize("admission", ["open", "enrolled", "invited"])
async def test_replies_do_not_depend_on_the_outcome(
    opened: Opened, admission: str, proved: bool
) -> None:
    server = opened(admission, proved=proved)
    worker, replies, sizes = server.worker(), set(), set()
    for value in (0, 1, 2) if proved else (0, 1, 5000):
        person = server.run.person()
        seat = (await arrive(worker, person)).seat
        body = server.run.answer(person, seat.request, value)
        sizes.add(len(person.answering(body).SerializeToString()))
        replies.add((await answer(worker, person, body)).SerializeToString())
    assert len(replies) == len(sizes) == 1


# -- what is no poll -------------------------------------------------------------


class NoStore:
    """A store that must not be asked."""

    async def read_cohort(self, cohort_id: str) -> SeatedCohort | None:
        return None

    async def take_seat(self, visitor: str, arrival: bytes) -> NoFreeSeat:
        raise AssertionError("the store was asked")

    async def store_answer(
        self, visitor: str, arrival: bytes, cohort_id: str, body: bytes
    ) -> AnswerResult:
        raise AssertionError("the store was asked")


RUN = SeatedRun("invited", lying=True)
POLL = RUN.person().arriving().SerializeToString()
CODES = {"malformed-message", "not-authenticated", "wrong-run", "too-late"}


@settings(max_examples=200, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_garbled_and_truncated_polls_get_a_code_and_never_reach_the_store(
    data: st.DataObject,
) -> None:
    kind = data.draw(st.sampled_from(["noise", "cut", "flip"]))
    if kind == "noise":
        body = data.draw(st.binary(max_size=600))
    elif kind == "cut":
        body = POLL[: data.draw(st.integers(0, len(POLL) - 1))]
    else:
        place = data.draw(st.integers(0, len(POLL) - 1))
        bit = data.draw(st.integers(0, 7))
        body = POLL[:place] + bytes([POLL[place] ^ 1 << bit]) + POLL[place + 1 :]
    known_run = VisitorRun("run-1", ("red",), "invited", RUN.trust)
    worker = VisitorHandler(known_run, NoStore(), lambda: NOW)
    result = asyncio.run(worker.handle(body))
    assert VisitorReply.FromString(result.reply).refused.code in CODES


async def test_an_oversized_poll_is_not_even_parsed() -> None:
    known_run = VisitorRun("run-1", ("red",), "invited", RUN.trust)
    worker = VisitorHandler(known_run, NoStore(), lambda: NOW)
    # A good one, but for a field that nobody knows: 1,000, with so many bytes.
    padding = b"\xc2\x3e" + b"\x80\x80\x02" + bytes(LARGEST_POLL)
    result = await worker.handle(POLL + padding)
    assert VisitorReply.FromString(result.reply) == refused("malformed-message")


async def test_while_the_store_is_down_a_poll_may_come_again() -> None:
    class Down(NoStore):
        async def take_seat(self, visitor: str, arrival: bytes) -> NoFreeSeat:
            raise UnavailableError("the password is hunter2")

    known_run = VisitorRun("run-1", ("red",), "invited", RUN.trust)
    result = await VisitorHandler(known_run, Down(), lambda: NOW).handle(POLL)
    assert VisitorReply.FromString(result.reply) == refused(
        RefusalCode.STORE_UNAVAILABLE, again=True
    )
    assert not result.blamed
