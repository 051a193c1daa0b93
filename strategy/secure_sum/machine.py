"""What the server machines of all back-ends have in common.

A stage asks some parties, hears or loses each, and ends when told to (complete, or the
deadline). A message that must not be acted upon costs its sender the stage; a second
one from a party already heard is refused and the first one stands.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from wallflower.protocol.errors import (
    InputError,
    ProtocolError,
    ReplayedMessageError,
    UnusableKeyError,
    WrongContextError,
)
from wallflower.protocol.identity.enrolment import Trust
from wallflower.protocol.secure_sum.backends import MOST_USERS, STAGE_NAMES
from wallflower.protocol.secure_sum.context import (
    check_place,
    context_of,
    roster_bytes,
    roster_digest,
    unwrap,
    wrap,
)
from wallflower.protocol.secure_sum.keys import check_usable, verify
from wallflower.protocol.secure_sum.session import (
    OUT,
    SENT,
    Ask,
    Finding,
    PartyId,
    Step,
    Void,
)
from wallflower.protocol.secure_sum.threat import COMPLETE_UP_TO, Threat
from wallflower.protocol.visitors import seats_note
from wallflower.protocol.wire.cohort_pb2 import CohortSpec
from wallflower.protocol.wire.secure_sum_pb2 import (
    Envelope,
    PartyKey,
    Roster,
    RosterNote,
    Stage,
)
from wallflower.protocol.wire.sum_state_pb2 import ServerState
from wallflower.strategy.secure_sum.contributions import check_claim
from wallflower.strategy.secure_sum.keyring import ServerKeyring


@dataclass(frozen=True, slots=True)
class SessionParams:
    """What a cohort is opened with."""

    spec: CohortSpec
    parties: Mapping[PartyId, int]
    trust: Trust | None
    keyring: ServerKeyring
    # Of people who arrived: each was checked when it came (strategy.visitors).
    contributions: Callable[[], Iterable[tuple[PartyId, bytes]]] | None = None


class ServerMachine(abc.ABC):
    """The server's half of a cohort's secure sum: `protocol.secure_sum.session`."""

    def __init__(self, opening: SessionParams) -> None:
        spec = opening.spec
        for party, users in opening.parties.items():
            if not party or users < 1:
                raise InputError("parties", f"{party!r}: {users}", "users ≥ 1 each")
        if opening.keyring.run_id != spec.run_id:
            raise InputError("keyring", opening.keyring.run_id, f"of run {spec.run_id}")
        self.opening = opening
        self.threat = Threat.from_wire(spec.threat)
        self.parties = dict(opening.parties)
        self.lost: dict[PartyId, str] = {}
        self.awaited: set[PartyId] = set()
        self.stage: int = 0
        self.over = False
        self._key_owners: dict[bytes, PartyId] = {}  # whoever showed a key first
        self._findings: dict[PartyId, Finding] = {}
        self.set_roster(self.parties)

    def __repr__(self) -> str:
        """Show where it stands."""
        name = STAGE_NAMES.get(self.stage, "new")
        return f"{type(self).__name__}({self.opening.spec.cohort_id!r}, {name})"

    def set_roster(self, roster: Mapping[PartyId, int]) -> None:
        """Fix who takes part; the context of every later message follows.

        People who arrive take seats: the context holds how many, and no names.
        """
        if self.opening.spec.admission:
            note = seats_note(self.opening.spec)
            self.context = context_of(self.opening.spec, note.digest, note.size)
            self.roster_note = self.known_note = note
            return
        body = roster_bytes(roster)
        digest = roster_digest(body)
        self.context = context_of(self.opening.spec, digest, len(roster))
        complete = len(roster) <= COMPLETE_UP_TO or self.threat.malicious_server
        self.roster_note = RosterNote(
            digest=digest, size=len(roster), roster=body if complete else b""
        )
        # For who was shown the list in an earlier stage of this session.
        self.known_note = RosterNote(digest=digest, size=len(roster))

    def start(self) -> Step:
        """Return the first messages; of a restored session those of its stage."""
        if self.stage != 0:
            messages = self._messages()
            return self._ask({p: messages[p] for p in messages if p in self.awaited})
        if len(self.parties) < 2:
            return self._void("cohort-of-one", "a sum over one node is that node's own")
        invited, quorum = sum(self.parties.values()), self.opening.spec.quorum
        if invited < quorum:
            return self._void("quorum-not-met", f"{invited} invited; quorum {quorum}")
        try:
            return self._first()
        except InputError as error:
            return self._void("threat-infeasible", str(error))

    def receive(self, party: PartyId, body: bytes) -> None:
        """Take one answer of the current stage; see `protocol.secure_sum.session`."""
        if self.over:
            raise WrongContextError("the session is over")
        if not self._concerns(party):
            raise WrongContextError(f"{party} is not in this cohort")
        if party not in self.awaited:
            raise ReplayedMessageError(f"{party} is not awaited in this stage")
        self.awaited.discard(party)
        try:
            envelope = unwrap(body)
            check_place(
                envelope,
                stage=self.stage,
                context=self.context,
                sender=party,
                receiver="",
            )
            self._take(party, envelope)
        except ProtocolError as error:
            self.lost[party] = error.code
            self.found(party, SENT, error.code)
            raise

    def lose(self, party: PartyId, code: str) -> None:
        """Note that a party refused or is gone; it is out of this stage."""
        if party in self.awaited:
            self.awaited.discard(party)
            self.lost[party] = code
            self.found(party, OUT, code)

    @property
    def out(self) -> Mapping[PartyId, str]:
        """Why parties are out, as far as it is known."""
        return self.lost

    @property
    def findings(self) -> Sequence[Finding]:
        """Who caused what so far; see `protocol.secure_sum.session`."""
        return tuple(self._findings.values())

    def found(self, party: PartyId, kind: str, word: str) -> None:
        """Note what is known of a party; the first thing known of it stands.

        Only that it was silent gives way: a dealer does not hide a wrong share so.
        """
        known = self._findings.get(party)
        if known is None or (known.kind == OUT and kind == SENT):
            self._findings[party] = Finding(party, kind, word)

    @property
    def stage_complete(self) -> bool:
        """True when no awaited party of this stage is left unheard."""
        return not self.awaited

    def advance(self) -> Step:
        """End the stage and give the next step."""
        if self.over:
            return Void("session-over", "the session already had its outcome")
        for party in sorted(self.awaited):
            self.found(party, OUT, "no-answer")
        self.awaited = set()
        return self._next()

    def snapshot(self) -> bytes:
        """Write down all that is needed to go on after a restart."""
        state = ServerState(
            spec=self.opening.spec,
            stage=cast(Stage, self.stage),
            awaited=sorted(self.awaited),
            lost=self.lost,
        )
        state.roster.CopyFrom(
            Roster(parties=list(self.parties), users=list(self.parties.values()))
        )
        self._write(state)
        return state.SerializeToString(deterministic=True)

    def resume(self, state: ServerState) -> None:
        """Take up a session written down by `snapshot`."""
        self.stage = state.stage
        self.lost = dict(state.lost)
        self.awaited = set(state.awaited)
        self._read(state)

    def enter(self, stage: int) -> Step:
        """Begin a stage: ask everyone it has a message for."""
        self.stage = stage
        messages = self._messages()
        self.awaited = set(messages)
        return self._ask(messages)

    def envelope(self, party: PartyId, payload: bytes) -> bytes:
        """Wrap a payload of the current stage for a party."""
        return wrap(self.stage, self.context, "", party, payload)

    def check_key(self, party: PartyId, key: PartyKey, *, mask: bool = False) -> int:
        """Refuse a key that would make others refuse; give its owner's capacity.

        Nobody has spent anything for a key; a bad one costs its owner the cohort.
        """
        spec, trust = self.opening.spec, self.opening.trust
        check_usable(key, mask=mask)
        capacity = MOST_USERS
        if trust is not None:
            certificate = verify(key, spec.run_id, spec.cohort_id, party, trust)
            capacity = certificate.capacity
        self.note_keys(party, key)
        return capacity

    def note_keys(self, party: PartyId, key: PartyKey) -> None:
        """Refuse keys that another party showed in this cohort.

        Public keys travel, so that a node can show one it saw elsewhere; members would
        refuse the whole set.
        """
        for shown in (key.key, key.mask_key):
            owner = self._key_owners.setdefault(shown, party) if shown else party
            if owner != party:
                raise UnusableKeyError(f"{party} shows a key that {owner} showed first")

    def check_users(self, party: PartyId, users: int, capacity: int) -> None:
        """Refuse a number of users that others would refuse."""
        check_claim(party, users, invited=self.parties[party], capacity=capacity)

    def _ask(self, messages: dict[PartyId, bytes]) -> Ask:
        return Ask(STAGE_NAMES[self.stage], messages)

    def _void(self, code: str, detail: str) -> Void:
        self.over = True
        self.awaited = set()
        self._forget()
        return Void(code, detail)

    def _end(self, step: Step) -> Step:
        self.over = True
        self._forget()
        return step

    def _concerns(self, party: PartyId) -> bool:
        """Return whether a party has anything to say in this session."""
        return party in self.parties

    @abc.abstractmethod
    def _first(self) -> Step:
        """Enter the first stage."""

    @abc.abstractmethod
    def _messages(self) -> dict[PartyId, bytes]:
        """Return every message of the current stage."""

    @abc.abstractmethod
    def _take(self, party: PartyId, envelope: Envelope) -> None:
        """Take a well-placed answer; raise ProtocolError for a bad one."""

    @abc.abstractmethod
    def _next(self) -> Step:
        """End the current stage."""

    @abc.abstractmethod
    def _write(self, state: ServerState) -> None:
        """Add the back-end's own part to a snapshot."""

    @abc.abstractmethod
    def _read(self, state: ServerState) -> None:
        """Take the back-end's own part from a snapshot."""

    @abc.abstractmethod
    def _forget(self) -> None:
        """Drop what a finished session does not need."""
