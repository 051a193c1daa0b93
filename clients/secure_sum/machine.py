"""What the client machines of all back-ends have in common.

One session is one cohort. Messages come in stages; each stage is answered once, the
very same request gets the very same answer again, and a different request for a stage
already answered is refused. After any refusal the session is dead and its secrets gone.
"""

from __future__ import annotations

import abc
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias, cast

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from wallflower.clients.secure_sum.keyring import ClientKeyring, OwnKey
from wallflower.clients.secure_sum.limits import ClientLimits
from wallflower.protocol.errors import (
    InputError,
    MalformedMessageError,
    RefusalError,
    ReplayedMessageError,
    WrongContextError,
)
from wallflower.protocol.identity.canonical import check_name
from wallflower.protocol.identity.enrolment import NodeIdentity, Trust
from wallflower.protocol.refusals import RefusalCode
from wallflower.protocol.secure_sum.backends import MOST_USERS, StageFacts
from wallflower.protocol.secure_sum.context import (
    check_place,
    context_of,
    read_roster,
    roster_digest,
    unwrap,
    wrap,
)
from wallflower.protocol.secure_sum.keys import check_distinct, check_usable, verify
from wallflower.protocol.secure_sum.session import (
    Contribution,
    InspectedRequest,
    StageAnswer,
)
from wallflower.protocol.secure_sum.threat import COMPLETE_UP_TO, Threat
from wallflower.protocol.visitors import seats_note
from wallflower.protocol.wire.cohort_pb2 import CohortSpec
from wallflower.protocol.wire.secure_sum_pb2 import (
    Envelope,
    PartyKey,
    RosterNote,
    Stage,
)
from wallflower.protocol.wire.sum_state_pb2 import Answered, ClientState


class SessionParams(NamedTuple):
    """What a session is opened with.

    `party` is this node's id, as on the roster and in its certificate; `identity` signs
    its keys where it has a certificate. `trust` is the enrolment key to believe;
    without one the server is assumed to keep to the protocol. `keyring` holds the
    node's keys for the run, for all of its sessions.
    """

    spec: CohortSpec
    party: str
    identity: NodeIdentity | None
    trust: Trust | None
    limits: ClientLimits
    keyring: ClientKeyring
    inviter: Trust | None = None  # whose invitations are believed


# Makes the payload of an answer, from the node's value where the stage needs it.
Reply: TypeAlias = Callable[[Contribution | None], bytes]


class ClientMachine(abc.ABC):
    """A node's half of one cohort's secure sum; see `ClientSession`."""

    stages: Mapping[int, StageFacts]

    def __init__(self, setting: SessionParams) -> None:
        spec = setting.spec
        if setting.keyring.run_id != spec.run_id:
            raise InputError("keyring", setting.keyring.run_id, f"of run {spec.run_id}")
        self.setting = setting
        self.threat = Threat.from_wire(spec.threat)
        self.context = b""
        self.roster: dict[str, int] | None = None
        self.roster_size = 0
        self._roster_body = b""
        self._noted = b"", 0  # digest and size of the roster that `context` holds
        self._answers: dict[int, tuple[bytes, bytes]] = {}
        self._own: OwnKey | None = None
        self._dead = False

    def __repr__(self) -> str:
        """Show where it stands and no secret."""
        return f"{type(self).__name__}({self.setting.spec.cohort_id!r})"

    @property
    def spec(self) -> CohortSpec:
        """The description the session was opened with."""
        return self.setting.spec

    @property
    def own(self) -> OwnKey:
        """This cohort's key pair."""
        if self._own is None:
            self._own = self.setting.keyring.own_key()
        return self._own

    def inspect(self, body: bytes) -> InspectedRequest:
        """Check a message completely; refuses first what must be refused.

        Rewards cost budget, so a message that would be refused never gets that far.
        """
        with self.closed_by_refusal():
            envelope = self._unwrap(body)
            known = self._stored_answer(envelope, body) is not None
            reply = None if known else self._check(envelope)
            return _Inspection(self, envelope, body, reply)

    def close(self) -> None:
        """Forget all secrets."""
        self._dead = True
        self._own = None
        self._answers.clear()
        self._forget()

    def snapshot(self) -> bytes:
        """Write down all that is needed to go on elsewhere, secrets included."""
        if self._dead:
            raise WrongContextError("the session is over; nothing of it is kept")
        state = ClientState(
            spec=self.setting.spec,
            party=self.setting.party,
            stage=cast(Stage, max(self._answers, default=0)),
            context=self.context,
            roster=self._roster_body,
            roster_size=self.roster_size,
            own=self._own_state(),
        )
        if self._own is not None:
            state.private_key = self._own.private.private_bytes_raw()
            state.whole_run = self._own.whole_run
        for stage, (request, answer) in self._answers.items():
            state.answers[stage].CopyFrom(Answered(request=request, answer=answer))
        return state.SerializeToString(deterministic=True)

    def resume(self, state: ClientState) -> None:
        """Take up a session written down by `snapshot`."""
        self.context = state.context
        self._roster_body = state.roster
        self.roster = read_roster(state.roster) if state.roster else None
        self.roster_size = state.roster_size
        if state.private_key:
            private = X25519PrivateKey.from_private_bytes(state.private_key)
            self._own = OwnKey.of(private, whole_run=state.whole_run)
            self.setting.keyring.adopt(self._own)
        for stage, answered in state.answers.items():
            self._answers[stage] = answered.request, answered.answer
        self._resume_own(state.own)

    def check_roster(
        self, note: RosterNote, envelope: Envelope, *, invited: bool = True
    ) -> None:
        """Verify who takes part, once; later stages must name the same roster.

        The list itself is demanded where something is checked against it: cohorts of
        up to 64 nodes, and any cohort that must withstand a lying server. Who only
        helps to open a sum need not be on it (`invited` False).
        """
        spec, limits = self.setting.spec, self.setting.limits
        noted = note.digest, note.size
        known = self.context if noted == self._noted else b""
        context = known or context_of(spec, note.digest, note.size)
        if envelope.context != context:
            raise WrongContextError("the message belongs to another cohort or roster")
        if self.context:
            if self.context != context:
                raise WrongContextError("the roster changed between stages")
            return
        limits.check_spec(spec, self.threat, self.setting.trust)
        limits.check_size(note.size)
        if spec.admission:
            self._check_seats(note)
            roster = None
        else:
            roster = listed_roster(note, required=self.threat.malicious_server)
        if roster is not None:
            if invited and self.setting.party not in roster:
                raise WrongContextError("this node is not on the roster")
            limits.check_quorum(spec, self.threat, roster)
            self.roster = roster
        self.roster_size = note.size
        self._roster_body = note.roster
        self.context, self._noted = context, noted

    def _check_seats(self, note: RosterNote) -> None:
        """Check a cohort of people who arrive: it has seats and lists nobody."""
        if note != seats_note(self.setting.spec):
            raise WrongContextError("a roster where people take seats")
        self.setting.limits.check_seats(self.setting.spec, self.threat)

    def has_answered(self, stage: int) -> bool:
        """Return whether a stage had its answer."""
        return stage in self._answers

    def check_keys(
        self, parties: Sequence[str], keys: Iterable[PartyKey], *, mask: bool = False
    ) -> list[int]:
        """Verify peers' keys; give how many users each may claim at most."""
        for party in parties:
            check_name(party)
        listed = list(keys)
        for key in listed:
            check_usable(key, mask=mask)
        check_distinct(listed)
        setting, trust = self.setting, self.setting.trust
        if trust is None:
            return [MOST_USERS] * len(listed)
        run_id, cohort_id = setting.spec.run_id, setting.spec.cohort_id
        return [
            verify(key, run_id, cohort_id, party, trust).capacity
            for party, key in zip(parties, listed, strict=True)
        ]

    def check_claim(self, party: str, users: int, capacity: int) -> None:
        """Refuse a number of users that a party cannot have."""
        if users < 1 or users > capacity:
            raise WrongContextError(f"{party} claims {users} users; allowed {capacity}")
        if self.roster is not None and users > self.roster.get(party, 0):
            raise WrongContextError(f"{party} claims more users than were invited")

    def _unwrap(self, body: bytes) -> Envelope:
        if self._dead:
            raise WrongContextError("the session is over")
        envelope = unwrap(body)
        if envelope.stage not in self.stages:
            raise WrongContextError(f"no stage {envelope.stage} in this protocol")
        return envelope

    def _check(self, envelope: Envelope) -> Reply:
        states_roster = self.stages[envelope.stage].states_roster
        context = b"" if states_roster else self.context
        if not context and not states_roster:
            raise WrongContextError("a stage before the roster is known")
        check_place(
            envelope,
            stage=envelope.stage,
            context=context or envelope.context,
            sender="",
            receiver=self.setting.party,
        )
        return self._inspect(envelope)

    def _stored_answer(self, envelope: Envelope, body: bytes) -> bytes | None:
        stored = self._answers.get(envelope.stage)
        if stored is None:
            if any(stage > envelope.stage for stage in self._answers):
                raise ReplayedMessageError("a stage that is already past")
            return None
        request, answer = stored
        if request != hashlib.sha256(body).digest():
            raise ReplayedMessageError("this stage already had its one answer")
        return answer

    def _check_value(self, contribution: Contribution | None) -> None:
        """Refuse a contribution that is missing or outside what can be summed."""
        modulus = self.setting.spec.modulus
        if contribution is None:
            raise InputError("contribution", None, "the node's value for this stage")
        if not 0 <= contribution.value < modulus:
            raise InputError("contribution", "outside ℤ_m", f"0 to {modulus - 1}")
        if contribution.users < 1:
            raise InputError("contribution.users", contribution.users, "at least 1")

    def check_users(self, users: int) -> None:
        """Refuse a contribution of more users than were invited or can be summed."""
        listed = self.roster
        if users > MOST_USERS or (
            listed is not None and users > listed.get(self.setting.party, 0)
        ):
            raise RefusalError(
                RefusalCode.TOO_MANY_USERS, "more users than were invited"
            )

    @contextmanager
    def closed_by_refusal(self) -> Iterator[None]:
        """End the session and forget its secrets if what is done inside fails."""
        try:
            yield
        except BaseException as error:
            self.close()
            if isinstance(error, InputError):
                raise RefusalError(
                    RefusalCode.COHORT_NOT_ACCEPTABLE, str(error)
                ) from None
            raise

    def answer(
        self,
        envelope: Envelope,
        body: bytes,
        reply: Reply | None,
        value: Contribution | None,
    ) -> StageAnswer:
        """Answer a message that was inspected; the same one always the same way."""
        if self._dead:
            raise WrongContextError("the session is over")
        facts = self.stages[envelope.stage]
        one_time_stage = facts.name if facts.given_once else None
        stored = self._stored_answer(envelope, body)
        if stored is not None:
            return StageAnswer(stored, one_time_stage)
        assert reply is not None
        if facts.takes_reward:
            self._check_value(value)
            self.check_users(0 if value is None else value.users)
        if not self._answers:
            self.setting.keyring.claim(self.setting.spec.cohort_id)
        payload = reply(value)
        answer = wrap(envelope.stage, self.context, self.setting.party, "", payload)
        self._answers[envelope.stage] = hashlib.sha256(body).digest(), answer
        return StageAnswer(answer, one_time_stage)

    @abc.abstractmethod
    def _inspect(self, envelope: Envelope) -> Reply:
        """Check a message without answering; return how it would be answered."""

    @abc.abstractmethod
    def _forget(self) -> None:
        """Drop what the back-end holds."""

    @abc.abstractmethod
    def _own_state(self) -> bytes:
        """Write down what the back-end holds between stages."""

    @abc.abstractmethod
    def _resume_own(self, body: bytes) -> None:
        """Take up what `_own_state` wrote."""


@dataclass(frozen=True, slots=True, repr=False)
class _Inspection:
    """An `InspectedRequest` of a machine; `reply` is None if it was answered before."""

    machine: ClientMachine
    envelope: Envelope
    body: bytes
    reply: Reply | None

    @property
    def needs_value(self) -> bool:
        """True if the answer needs the node's value."""
        facts = self.machine.stages[self.envelope.stage]
        return facts.takes_reward and self.reply is not None

    def check_users(self, users: int) -> None:
        """Refuse a contribution of more users than were invited or can be summed."""
        with self.machine.closed_by_refusal():
            self.machine.check_users(users)

    def answer(self, value: Contribution | None = None) -> StageAnswer:
        """Return the answer; the same message always has the same one."""
        with self.machine.closed_by_refusal():
            return self.machine.answer(self.envelope, self.body, self.reply, value)


def listed_roster(note: RosterNote, *, required: bool) -> dict[str, int] | None:
    """Read the list of a roster; None where it is large and was not required."""
    if not note.roster:
        if required or note.size <= COMPLETE_UP_TO:
            raise MalformedMessageError("the roster is missing")
        return None
    if roster_digest(note.roster) != note.digest:
        raise WrongContextError("the roster is not the one that was announced")
    roster = read_roster(note.roster)
    if len(roster) != note.size:
        raise MalformedMessageError("the roster has another size than stated")
    return roster
