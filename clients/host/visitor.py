"""One person who arrives: takes a seat, is shown its arm, answers, all of it once.

The person's node is the one that everybody else has: policy, ledger, session. What may
happen once is on disk before it happens, so that a process that died goes on: the
arrival before it is sent, the spend before the arm is shown, the answer before it
leaves.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path

from wallflower.clients.consent import ClientPolicy
from wallflower.clients.host.assemble import NodeSetup, make_node
from wallflower.clients.node.node import Node
from wallflower.clients.node.sessions import SessionStore
from wallflower.clients.node.spends import NodeLedger, OneTimeAnswer, Spend
from wallflower.clients.transport.visitor_calls import Poll
from wallflower.protocol.errors import (
    InputError,
    MalformedMessageError,
    ProtocolError,
    RefusalError,
    UnavailableError,
    WrongContextError,
)
from wallflower.protocol.files.sections import one_of
from wallflower.protocol.identity.canonical import LONGEST_NAME
from wallflower.protocol.identity.enrolment import NodeIdentity
from wallflower.protocol.refusals import RefusalCode
from wallflower.protocol.secure_sum.context import parse
from wallflower.protocol.visitors import (
    ADMISSIONS,
    ARRIVAL_BYTES,
    LARGEST_REPLY,
    NO_FREE_SEAT,
    NO_SEAT_REASONS,
    OPEN,
    POLL_REFUSALS,
    VERSION,
    arrival_transcript,
)
from wallflower.protocol.wire.node_pb2 import NodeAnswer, NodeRequest, TaskAnswer
from wallflower.protocol.wire.visitors_pb2 import (
    NoSeat,
    Seat,
    VisitorPoll,
    VisitorReply,
)

_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.5, 60.0
_PATIENCE_S = 3_600.0
_PERSON = "person"  # whose ledger it is, as its node and its only user
ARRIVING, ANSWERING = ("seat", "no_seat"), ("taken",)  # what each is replied to with
_jitter = secrets.SystemRandom()


@dataclass(frozen=True, slots=True)
class Shown:
    """What a person is shown; `reason` says why nothing is measured, if so."""

    arm_name: str
    reason: str = ""

    @property
    def measured(self) -> bool:
        """Whether this person is in a sum."""
        return not self.reason


@dataclass(frozen=True, slots=True)
class Person:
    """Who comes to which run.

    Attributes
    ----------
    run_id : the run.
    admission : how they come: ``enrolled``, ``invited`` or ``open``.
    name : as on the certificate; drawn where anybody may come.
    identity : signs; None where anybody may come.
    arrival : sixteen bytes, the same for every repetition.
    """

    run_id: str
    admission: str
    name: str
    identity: NodeIdentity | None
    arrival: bytes

    def arriving(self) -> VisitorPoll:
        """Return the poll of an arrival."""
        poll = self._poll()
        if self.identity is not None and self.identity.certificate is not None:
            poll.certificate = self.identity.certificate.to_bytes()
            poll.signature = self.identity.sign(arrival_transcript(poll))
        return poll

    def answering(self, answer: bytes) -> VisitorPoll:
        """Return the poll of an answer, a serialized NodeAnswer."""
        poll = self._poll()
        poll.answer = answer
        return poll

    def _poll(self) -> VisitorPoll:
        return VisitorPoll(
            version=VERSION,
            run_id=self.run_id,
            visitor=self.name,
            arrival=self.arrival,
        )


@contextlib.contextmanager
def visitor_at(
    home: Path,
    run_id: str,
    setup: NodeSetup,
    identity: NodeIdentity | None = None,
    admission: str = OPEN,
) -> Iterator[Visitor]:
    """Make the visitor whose state lies in a folder; the ledger is the setup's.

    Parameters
    ----------
    home : Path
        Where arrivals and sessions are kept.
    run_id : str
        The run to come to.
    setup : NodeSetup
        Policy, ledger, source of the outcome, whom to believe. The ledger is one
        person's: all that they spend counts together, under whatever name they come.
        With an enrolment key the server is not believed, unless the policy says so.
    identity : NodeIdentity, optional
        Of an invitation, or with a certificate of enrolment; None where anybody may
        come. It signs, whatever `setup` says.
    admission : str
        How they come: ``enrolled``, ``invited`` or ``open``.
    """
    one_of("admission", admission, ADMISSIONS)
    if (identity is None) != (admission == OPEN):
        allowed = "an identity, except where anybody may come"
        raise InputError("identity", "missing or too much", allowed)
    store = SessionStore(home)
    try:
        name = _name(store, run_id) if identity is None else identity.node_id
        drawn = secrets.token_bytes(ARRIVAL_BYTES)
        arrival = store.write_once("arrival", name, run_id, drawn)
        person = Person(run_id, admission, name, identity, arrival)
        own = PersonLedger(setup.ledger, name)
        vouched = setup.enrolment_key is not None
        policy = setup.policy.enrolled() if vouched else setup.policy
        known = replace(setup, policy=policy, ledger=own, identity=lambda _: identity)
        node = make_node(known, name, [name], store=store)
        yield Visitor(person, node, policy)
    finally:
        store.close()


def _name(store: SessionStore, run_id: str) -> str:
    """Draw a name; another one in every run, so that nobody is recognised."""
    return store.write_once("name", "", run_id, secrets.token_bytes(16)).hex()


class PersonLedger:
    """A person's ledger: one account, under whatever name they come to a run.

    A visitor has another name with every invitation and in every run. Counted by these
    names, nobody would ever have spent anything before.
    """

    def __init__(self, ledger: NodeLedger, name: str) -> None:
        self._ledger = ledger
        self._name = name

    async def spend(self, entry: Spend) -> None:
        """See `NodeLedger.spend`."""
        await self._ledger.spend(self._own(entry))

    async def prepare(self, entry: Spend) -> Mapping[str, str]:
        """See `NodeLedger.prepare`."""
        code = (await self._ledger.prepare(self._own(entry))).get(_PERSON)
        return {} if code is None else {self._name: code}

    async def record_answer(self, answer: OneTimeAnswer) -> None:
        """See `NodeLedger.record_answer`."""
        await self._ledger.record_answer(replace(answer, node_id=_PERSON))

    async def withdrawn(self, node_id: str) -> Set[str]:
        """See `NodeLedger.withdrawn`."""
        found = await self._ledger.withdrawn(_PERSON)
        return {self._name} if _PERSON in found else frozenset()

    async def has_answered(self, node_id: str, run_id: str, cohort_id: str) -> bool:
        """See `NodeLedger.has_answered`."""
        return await self._ledger.has_answered(_PERSON, run_id, cohort_id)

    async def latest_cohorts(
        self, node_id: str, run_id: str, most: int
    ) -> Sequence[str]:
        """See `NodeLedger.latest_cohorts`."""
        return await self._ledger.latest_cohorts(_PERSON, run_id, most)

    def _own(self, entry: Spend) -> Spend:
        assert entry.users == (self._name,)  # a seat is for one person
        return replace(entry, node_id=_PERSON, users=(_PERSON,))


class Visitor:
    """One person on their own node.

    Parameters
    ----------
    person : Person
        Who comes to which run.
    node : Node
        Their node: one user, of the person's name.
    policy : ClientPolicy
        The node's: what the person agreed to.
    """

    def __init__(self, person: Person, node: Node, policy: ClientPolicy) -> None:
        self.person = person
        self._node = node
        self._policy = policy
        self._node.only_run = person.run_id
        self._node.admission = person.admission
        self._node.polls = True  # holds no share of any key

    async def take_part(self, poll: Poll) -> Shown:
        """Arrive, show the arm, answer; whatever was done before is not done again.

        Raises RefusalError where the terms are not what was agreed to, or the server
        does not take us; UnavailableError where it is not reached for an hour.
        """
        reply = await self._send(poll, self.person.arriving(), ARRIVING)
        if reply.WhichOneof("kind") == "no_seat":
            return read_no_seat(reply.no_seat, self._policy)
        request = read_seat(reply.seat, self.person)
        self._policy.check_arms(reply.seat.arms)
        answer = await self._node.handle(reply.seat.request)
        _check_given(parse(NodeAnswer, answer))
        await self._send(poll, self.person.answering(answer), ANSWERING)
        return Shown(request.tasks[0].stage.spec.arm_name)

    async def _send(
        self, poll: Poll, message: VisitorPoll, kinds: Sequence[str]
    ) -> VisitorReply:
        """Send a poll until it has its reply; raises RefusalError."""
        loop, body = asyncio.get_running_loop(), message.SerializeToString()
        until, wait_s = loop.time() + _PATIENCE_S, _FIRST_WAIT_S
        while True:
            try:
                reply = read_reply(await poll(body), kinds)
                if reply is not None:
                    return reply
                failure = UnavailableError("the server asked to come again")
            except UnavailableError as error:
                failure = error
            if loop.time() + wait_s > until:
                raise failure
            await asyncio.sleep(wait_s * (0.75 + _jitter.random() / 2))
            wait_s = min(2 * wait_s, _LONGEST_WAIT_S)


def read_seat(seat: Seat, person: Person) -> NodeRequest:
    """Return a seat's request, or refuse what is no seat of this person.

    A server could send a visitor anything that a node answers. Only this is answered:
    one stage of one cohort, for this person alone, under the admission they came by.
    """
    request = parse(NodeRequest, seat.request)
    if len(request.tasks) != 1 or request.tasks[0].WhichOneof("kind") != "stage":
        raise WrongContextError("a seat asks for one stage of one cohort")
    stage = request.tasks[0].stage
    if list(stage.users) != [person.name]:
        raise WrongContextError("a seat is for one person")
    if stage.spec.admission != person.admission:
        raise RefusalError(
            RefusalCode.BAD_COHORT,
            f"came {person.admission}, to a cohort whose people are "
            f"{stage.spec.admission[:20] or 'known beforehand'}",
        )
    if stage.spec.arm_name not in seat.arms:
        raise WrongContextError("a seat whose arm is not in the experiment")
    return request


def read_reply(body: bytes, kinds: Sequence[str]) -> VisitorReply | None:
    """Return a reply of one of these kinds; None where the poll may succeed later.

    Raises RefusalError for a refusal, ProtocolError for what is no reply to the poll.
    """
    if len(body) > LARGEST_REPLY:
        raise MalformedMessageError("a reply is too large")
    reply = parse(VisitorReply, body)
    kind, code = reply.WhichOneof("kind"), reply.refused.code
    if reply.refused.again:
        return None
    if kind == "refused" and code in POLL_REFUSALS:
        raise RefusalError(RefusalCode(code), "the server does not take this poll")
    if kind == "refused":
        raise ProtocolError("the server refuses a poll for no reason that it may have")
    if kind not in kinds:
        raise MalformedMessageError("a poll was answered with something else")
    return reply


def read_no_seat(no_seat: NoSeat, policy: ClientPolicy) -> Shown:
    """Return what a person without a seat is shown, if they agreed to that arm."""
    name = no_seat.arm_name
    if len(name) > LONGEST_NAME or not name.isprintable():
        raise MalformedMessageError("an arm's name is too long, or not printable")
    policy.check_arms([name])
    known = no_seat.reason in NO_SEAT_REASONS
    return Shown(name, no_seat.reason if known else NO_FREE_SEAT)


def _check_given(answer: NodeAnswer) -> TaskAnswer:
    (given,) = answer.answers
    if given.WhichOneof("kind") != "message":
        code, text = given.refusal.code, "the seat's terms are not what was agreed"
        if code in frozenset(RefusalCode):
            raise RefusalError(RefusalCode(code), text)
        raise ProtocolError(text)
    return given
