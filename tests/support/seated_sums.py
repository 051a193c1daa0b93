"""Cohorts whose people arrive, in memory: a key of trustees, terms, real visitors."""

from __future__ import annotations

import secrets
from dataclasses import dataclass

from tests.support.secure_sums import (
    NOW,
    TENTH,
    Cohort,
    Enrolment,
    cohort_spec,
    deal_key,
    names,
    run_dealing,
)
from wallflower.clients.secure_sum.keyring import ClientKeyring
from wallflower.clients.secure_sum.limits import ClientLimits
from wallflower.clients.secure_sum.machine import SessionParams
from wallflower.clients.secure_sum.opener import open_session
from wallflower.protocol.identity.enrolment import EnrolmentKey, NodeIdentity, Trust
from wallflower.protocol.secure_sum.session import Contribution, KeyReady
from wallflower.protocol.secure_sum.threat import Threat
from wallflower.protocol.visitors import (
    ARRIVAL_BYTES,
    ENROLLED,
    INVITED,
    OPEN,
    VERSION,
    Invitation,
    arrival_transcript,
)
from wallflower.protocol.wire.cohort_pb2 import CohortSpec
from wallflower.protocol.wire.node_pb2 import (
    NodeAnswer,
    NodeRequest,
    Task,
    TaskAnswer,
)
from wallflower.protocol.wire.visitors_pb2 import VisitorPoll
from wallflower.strategy.secure_sum import ServerKeyring
from wallflower.strategy.secure_sum.contributions import seat_terms
from wallflower.strategy.store.seats import SeatedCohort

RUN = "run-1"
ARMS = ("red", "green", "blue")


@dataclass
class Person:
    """Somebody who arrives: a name, maybe a certified key, and what they drew."""

    name: str
    identity: NodeIdentity | None
    arrival: bytes

    @property
    def certificate(self) -> bytes:
        if self.identity is None or self.identity.certificate is None:
            return b""
        return self.identity.certificate.to_bytes()

    def arriving(self, run_id: str = RUN) -> VisitorPoll:
        poll = VisitorPoll(
            version=VERSION,
            run_id=run_id,
            visitor=self.name,
            arrival=self.arrival,
            certificate=self.certificate,
        )
        if self.identity is not None:
            poll.signature = self.identity.sign(arrival_transcript(poll))
        return poll

    def answering(self, answer: bytes, run_id: str = RUN) -> VisitorPoll:
        return VisitorPoll(
            version=VERSION,
            run_id=run_id,
            visitor=self.name,
            arrival=self.arrival,
            answer=answer,
        )


def answer_task(task: Task, params: SessionParams, value: int) -> bytes:
    """Return the NodeAnswer of a client session that adds `value`."""
    inspected = open_session(params).inspect(task.stage.message)
    assert inspected.needs_value
    message = inspected.answer(Contribution(value, 1)).body
    answers = [TaskAnswer(task_id=task.task_id, message=message)]
    return NodeAnswer(answers=answers).SerializeToString()


class SeatedRun:
    """One run with seats: its trustees' key, and whoever may come.

    Parameters
    ----------
    admission : enrolled, invited or open.
    lying : whether the sums withstand a lying server.
    proved : whether contributions prove their range.
    seats : of each cohort.
    run_id : names the run.
    """

    def __init__(
        self,
        admission: str = OPEN,
        *,
        lying: bool = False,
        proved: bool = False,
        seats: int = 6,
        run_id: str = RUN,
    ) -> None:
        self.admission, self.proved, self.seats = admission, proved, seats
        self.run_id, self.now = run_id, NOW  # when sums are opened
        self.threat = Threat(TENTH, TENTH, malicious_server=lying)
        self.enrolment = Enrolment()
        self.inviter = EnrolmentKey.generate()
        self.trustees = names(5)
        self.trustee_rings: dict[str, ClientKeyring] = {}
        self.ring = ServerKeyring(run_id)
        assert isinstance(run_dealing(self._dealing()), KeyReady)

    def _dealing(self) -> Cohort:
        enrolment = self.enrolment if self.threat.malicious_server else None
        return deal_key(
            self.run_id,
            self.threat,
            self.trustees,
            self.trustee_rings,
            self.ring,
            enrolment,
        )

    @property
    def trust(self) -> Trust | None:
        """Who vouches for the visitors."""
        return {
            OPEN: None,
            ENROLLED: self.enrolment.trust,
            INVITED: Trust(self.inviter.public_key, lambda: self.now),
        }[self.admission]

    def spec(self, cohort_id: str, arm: int = 0) -> CohortSpec:
        spec = cohort_spec(
            "sealed",
            names(self.seats),
            run_id=self.run_id,
            cohort_id=cohort_id,
            threat=self.threat,
            proved=self.proved,
        )
        spec.admission, spec.arm, spec.arm_name = self.admission, arm, ARMS[arm]
        return spec

    def cohort(self, cohort_id: str = "cohort-1", arm: int = 0) -> SeatedCohort:
        assert self.ring.dealt is not None
        terms = seat_terms(self.spec(cohort_id, arm), self.ring.dealt.note)
        return SeatedCohort(
            cohort_id, arm, self.seats, terms, NOW + 500.0, NOW + 1000.0
        )

    def person(self) -> Person:
        arrival = secrets.token_bytes(ARRIVAL_BYTES)
        if self.admission == OPEN:
            return Person(secrets.token_hex(16), None, arrival)
        if self.admission == ENROLLED:
            identity = self.enrolment.identity(f"person-{secrets.token_hex(4)}")
        else:
            invitation = Invitation.issue(self.inviter, not_after=NOW + 1000)
            identity = invitation.identity
        return Person(identity.node_id, identity, arrival)

    @property
    def limits(self) -> ClientLimits:
        """What visitors insist on: they know the trustees by name."""
        return ClientLimits(trustees=frozenset(self.trustees))

    def answer(
        self,
        person: Person,
        request: bytes,
        value: int = 1,
        limits: ClientLimits | None = None,
    ) -> bytes:
        """Return the NodeAnswer of a real client session to a seat's request."""
        (task,) = NodeRequest.FromString(request).tasks
        assert list(task.stage.users) == [person.name]
        params = SessionParams(
            spec=task.stage.spec,
            party=person.name,
            identity=person.identity,
            trust=self.enrolment.trust,
            limits=self.limits if limits is None else limits,
            keyring=ClientKeyring(self.run_id),
            inviter=Trust(self.inviter.public_key, lambda: NOW),
        )
        return answer_task(task, params, value)

    def open_sum(self, member: str, spec: CohortSpec, message: bytes) -> bytes:
        """Return a trustee's answer to a closed sum."""
        lying = self.threat.malicious_server
        session = open_session(
            SessionParams(
                spec=spec,
                party=member,
                identity=self.enrolment.identity(member) if lying else None,
                trust=self.enrolment.trust_at(self.now) if lying else None,
                limits=ClientLimits(),
                keyring=self.trustee_rings[member],
                inviter=Trust(self.inviter.public_key, lambda: self.now),
            )
        )
        return session.inspect(message).answer().body
