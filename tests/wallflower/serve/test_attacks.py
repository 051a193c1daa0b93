"""What intruders send to a worker: over both wires, and into whatever store there is.

One honest person has a seat and is about to answer. Nobody else may get a seat, and
nothing but that person's one answer may get into the store.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace

import pytest

from tests.support.seat_server import SeatServer
from tests.support.seated_sums import Person, SeatedRun
from tests.support.secure_sums import NOW
from tests.wallflower.serve.conftest import OpenWires, Wires
from wallflower.clients.transport.visitor_calls import (
    Poll,
    poll_by_grpc,
    poll_by_http,
)
from wallflower.protocol.identity.enrolment import EnrolmentKey, NodeIdentity
from wallflower.protocol.secure_sum.context import unwrap, wrap
from wallflower.protocol.secure_sum.sealed.group import KeyPair, Point
from wallflower.protocol.visitors import Invitation, arrival_transcript
from wallflower.protocol.wire.node_pb2 import NodeAnswer, Refusal
from wallflower.protocol.wire.sealed_pb2 import SealAnswer
from wallflower.protocol.wire.secure_sum_pb2 import Envelope
from wallflower.protocol.wire.visitors_pb2 import VisitorPoll, VisitorReply
from wallflower.strategy.secure_sum.contributions import SeatTerms

WIRES = ("http", "grpc")


@pytest.fixture
def admission() -> str:
    """Whoever may come here was invited, and the server is not believed."""
    return "invited"


@dataclass
class Scene:
    """What an intruder may know: a person, their seat, and what they will answer."""

    server: SeatServer
    person: Person
    request: bytes
    answer: bytes

    @property
    def run(self) -> SeatedRun:
        return self.server.run

    @property
    def other(self) -> str:
        """The cohort whose arm the person was not shown."""
        return "cohort-1" if b"cohort-0" in self.request else "cohort-0"

    def answering(self, answer: bytes) -> VisitorPoll:
        return self.person.answering(answer)


Attack = Callable[[Scene], VisitorPoll]
Change = Callable[[SealAnswer], object]


# --- to get a seat ----------------------------------------------------------------


def invited(
    scene: Scene, *, until: int = NOW + 1000, key: EnrolmentKey | None = None
) -> Person:
    identity = Invitation.issue(key or scene.run.inviter, not_after=until).identity
    return Person(identity.node_id, identity, secrets.token_bytes(16))


def altered(**fields: object) -> Attack:
    """Change an arrival after it was signed."""

    def attack(scene: Scene) -> VisitorPoll:
        poll = invited(scene).arriving()
        for name, value in fields.items():
            setattr(poll, name, value)
        return poll

    return attack


def signed_by_a_thief(scene: Scene) -> VisitorPoll:
    poll = invited(scene).arriving()
    poll.signature = NodeIdentity.generate(poll.visitor).sign(arrival_transcript(poll))
    return poll


def signature_of_another_arrival(scene: Scene) -> VisitorPoll:
    mine = invited(scene)
    poll, earlier = mine.arriving(), replace(mine, arrival=bytes(16)).arriving()
    poll.signature = earlier.signature
    return poll


def the_persons_certificate(scene: Scene) -> VisitorPoll:
    poll = invited(scene).arriving()
    poll.visitor, poll.certificate = scene.person.name, scene.person.certificate
    return poll


def with_enrolment(scene: Scene) -> VisitorPoll:
    identity = scene.run.enrolment.identity("clinic")
    return Person("clinic", identity, bytes(16)).arriving()


def self_made(scene: Scene) -> VisitorPoll:
    return invited(scene, key=EnrolmentKey.generate()).arriving()


ARRIVING: dict[str, tuple[Attack, set[str]]] = {
    "unsigned": (altered(signature=b""), {"not-authenticated"}),
    "zeros for a signature": (altered(signature=bytes(64)), {"not-authenticated"}),
    "another arrival": (altered(arrival=bytes(16)), {"not-authenticated"}),
    "another name": (altered(visitor="f" * 32), {"not-authenticated"}),
    "no name": (altered(visitor=""), {"malformed-message"}),
    "a name without end": (altered(visitor="f" * 5000), {"malformed-message"}),
    "a name of controls": (altered(visitor="\x00\n"), {"not-authenticated"}),
    "no certificate": (
        altered(certificate=b""),
        {"not-authenticated", "malformed-message"},
    ),
    "half a certificate": (
        altered(certificate=b"\x0a\x03abc"),
        {"not-authenticated", "malformed-message"},
    ),
    "short arrival": (altered(arrival=bytes(15)), {"malformed-message"}),
    "long arrival": (altered(arrival=bytes(17)), {"malformed-message"}),
    "another run": (altered(run_id="run-2"), {"wrong-run"}),
    "another version": (altered(version=2), {"malformed-message"}),
    "signed by a thief": (signed_by_a_thief, {"not-authenticated"}),
    "another arrival's signature": (
        signature_of_another_arrival,
        {"not-authenticated"},
    ),
    "the person's certificate": (the_persons_certificate, {"not-authenticated"}),
    "an enrolled node": (with_enrolment, {"not-authenticated"}),
    "a self-made invitation": (self_made, {"not-authenticated"}),
    "an invitation that ended": (
        lambda scene: invited(scene, until=NOW - 1).arriving(),
        {"not-authenticated"},
    ),
}


# --- to get an answer in -----------------------------------------------------------


def sealed(change: Change) -> Attack:
    """Change the contribution inside the person's answer."""

    def attack(scene: Scene) -> VisitorPoll:
        reply = NodeAnswer.FromString(scene.answer)
        envelope = unwrap(reply.answers[0].message)
        contribution = SealAnswer.FromString(envelope.payload)
        change(contribution)
        reply.answers[0].message = wrap(
            envelope.stage,
            envelope.context,
            envelope.sender,
            envelope.receiver,
            contribution.SerializeToString(),
        )
        return scene.answering(reply.SerializeToString())

    return attack


def enveloped(change: Callable[[Envelope], object]) -> Attack:
    """Change the envelope of the person's answer, and its checksum with it."""

    def attack(scene: Scene) -> VisitorPoll:
        reply = NodeAnswer.FromString(scene.answer)
        envelope = unwrap(reply.answers[0].message)
        change(envelope)
        reply.answers[0].message = wrap(
            envelope.stage,
            envelope.context,
            envelope.sender,
            envelope.receiver,
            envelope.payload,
        )
        return scene.answering(reply.SerializeToString())

    return attack


def wrapped(change: Callable[[NodeAnswer], object]) -> Attack:
    """Change what is around the person's answer."""

    def attack(scene: Scene) -> VisitorPoll:
        reply = NodeAnswer.FromString(scene.answer)
        change(reply)
        return scene.answering(reply.SerializeToString())

    return attack


def add_one(contribution: SealAnswer) -> None:
    contribution.two = bytes(Point.parse(contribution.two) + KeyPair.generate().point)


def of_the_other_arm(scene: Scene) -> VisitorPoll:
    """Well-formed, signed and proved, for the cohort whose arm was not shown."""
    request = scene.server.terms(scene.other).request_for(scene.person.name)
    return scene.answering(scene.run.answer(scene.person, request))


def without_a_seat(scene: Scene) -> VisitorPoll:
    """By somebody who was invited and did not arrive."""
    stranger = invited(scene)
    request = scene.server.terms("cohort-0").request_for(stranger.name)
    return stranger.answering(scene.run.answer(stranger, request))


def with_the_persons_arrival(scene: Scene) -> VisitorPoll:
    poll = without_a_seat(scene)
    poll.arrival = scene.person.arrival
    return poll


def with_a_guessed_arrival(scene: Scene) -> VisitorPoll:
    poll = scene.answering(scene.answer)
    poll.arrival = secrets.token_bytes(16)
    return poll


def in_the_persons_name(scene: Scene) -> VisitorPoll:
    """A stranger's good contribution, sent as the person's."""
    poll = without_a_seat(scene)
    poll.visitor, poll.arrival = scene.person.name, scene.person.arrival
    return poll


def of_another_run(scene: Scene) -> VisitorPoll:
    """The same person's good contribution to a cohort of the same name elsewhere."""
    elsewhere = SeatedRun(scene.run.admission, lying=True, run_id="run-2")
    cohort_id = NodeAnswer.FromString(scene.answer).answers[0].task_id
    terms = SeatTerms(elsewhere.cohort(cohort_id).terms, elsewhere.trust)
    request = terms.request_for(scene.person.name)
    return scene.answering(elsewhere.answer(scene.person, request))


def for_the_other_cohort(scene: Scene) -> VisitorPoll:
    """The person's own contribution, said to be to the other cohort."""
    reply = NodeAnswer.FromString(scene.answer)
    reply.answers[0].task_id = scene.other
    return scene.answering(reply.SerializeToString())


ANSWERING: dict[str, tuple[Attack, set[str]]] = {
    "the other arm's": (of_the_other_arm, {"no-seat"}),
    "without a seat": (without_a_seat, {"no-seat"}),
    "the person's arrival": (with_the_persons_arrival, {"no-seat"}),
    "a guessed arrival": (with_a_guessed_arrival, {"no-seat"}),
    "in the person's name": (in_the_persons_name, {"wrong-context"}),
    "of another run": (of_another_run, {"wrong-context"}),
    "unsigned": (
        sealed(lambda one: one.ClearField("signature")),
        {"not-authenticated"},
    ),
    "uncertified": (
        sealed(lambda one: one.ClearField("certificate")),
        {"not-authenticated", "malformed-message"},
    ),
    "for nobody": (sealed(lambda one: setattr(one, "users", 0)), {"not-authenticated"}),
    "for two": (sealed(lambda one: setattr(one, "users", 2)), {"not-authenticated"}),
    "one more than it was": (sealed(add_one), {"not-authenticated"}),
    "no point": (
        sealed(lambda one: setattr(one, "one", b"\x02" + b"\xff" * 32)),
        {"not-authenticated"},
    ),
    "no proof": (
        sealed(lambda one: one.ClearField("proof")),
        {"not-proved", "malformed-message"},
    ),
    "another proof": (
        sealed(lambda one: setattr(one, "proof", one.proof[::-1])),
        {"not-proved", "malformed-message"},
    ),
    "a proof of range too much": (
        sealed(lambda one: setattr(one, "range", b"\x01" * 2000)),
        {"malformed-message"},
    ),
    "another sender": (
        enveloped(lambda one: setattr(one, "sender", "f" * 32)),
        {"wrong-context"},
    ),
    "another stage": (
        enveloped(lambda one: setattr(one, "stage", 1)),
        {"wrong-context"},
    ),
    "a garbled payload": (
        enveloped(lambda one: setattr(one, "payload", b"\xff" * 50)),
        {"malformed-message"},
    ),
    "nothing inside": (
        enveloped(lambda one: setattr(one, "payload", b"")),
        {"not-authenticated", "malformed-message"},
    ),
    "two answers": (
        wrapped(lambda one: one.answers.append(one.answers[0])),
        {"malformed-message"},
    ),
    "of an unknown cohort": (
        wrapped(lambda one: setattr(one.answers[0], "task_id", "cohort-9")),
        {"too-late"},
    ),
    "of the other cohort": (for_the_other_cohort, {"wrong-context"}),
    "a refusal": (
        wrapped(lambda one: one.answers[0].refusal.CopyFrom(Refusal(code="x"))),
        {"malformed-message"},
    ),
    "cut short": (
        wrapped(
            lambda one: setattr(one.answers[0], "message", one.answers[0].message[:-9])
        ),
        {"malformed-message"},
    ),
    "garbage": (lambda scene: scene.answering(b"\xff" * 40), {"malformed-message"}),
}


@contextlib.asynccontextmanager
async def calling(wire: str, wires: Wires) -> AsyncIterator[Poll]:
    if wire == "http":
        yield poll_by_http(wires.url)
        return
    async with poll_by_grpc(f"127.0.0.1:{wires.grpc_port}") as poll:
        yield poll


async def reply_of(poll: Poll, message: VisitorPoll) -> VisitorReply:
    return VisitorReply.FromString(await poll(message.SerializeToString()))


@pytest.mark.parametrize("wire", WIRES)
async def test_no_intruder_gets_a_seat_or_an_answer_in(
    open_wires: OpenWires, wire: str
) -> None:
    async with open_wires() as wires, calling(wire, wires) as poll:
        server, person = wires.server, wires.server.run.person()
        request = (await reply_of(poll, person.arriving())).seat.request
        scene = Scene(server, person, request, server.run.answer(person, request))
        for attacks in (ARRIVING, ANSWERING):
            for name, (attack, codes) in attacks.items():
                reply = await reply_of(poll, attack(scene))
                assert reply.refused.code in codes, (name, reply)
                assert not reply.refused.again, name
        counts = server.register.count_seats()
        assert sum(one.taken for one in counts.values()) == 1
        assert sum(one.answered for one in counts.values()) == 0

        good = person.answering(scene.answer)
        assert (await reply_of(poll, good)).WhichOneof("kind") == "taken"
        another = person.answering(server.run.answer(person, request, 2))
        assert (await reply_of(poll, another)).refused.code == "replayed-message"
        assert (await reply_of(poll, good)).WhichOneof("kind") == "taken"
        newly = replace(person, arrival=secrets.token_bytes(16)).arriving()
        assert (await reply_of(poll, newly)).no_seat.reason == "already-answered"
        stored = {name: server.stored(name) for name in server.open}
        assert [list(one) for one in stored.values() if one] == [[person.name]]
        assert (await reply_of(poll, another)).refused.code == "replayed-message"
