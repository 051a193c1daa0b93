"""`sealed`, the server's side of a cohort: seal, open.

The server takes one ciphertext from every node, adds up, and asks the run's committee
for s_i·ΣC₁; any t good answers give the sum. It sees the roster, ciphertexts, users per
node, the closed set and the sum. Who fails a proof is named and left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set

from wallflower.protocol.accounting.truncation import Truncation, truncation
from wallflower.protocol.cohort import cohort_mechanism
from wallflower.protocol.errors import (
    InputError,
)
from wallflower.protocol.secure_sum.backends import OPEN, SEAL
from wallflower.protocol.secure_sum.context import parse
from wallflower.protocol.secure_sum.sealed import ranges
from wallflower.protocol.secure_sum.sealed.cipher import (
    LARGEST_WINDOW,
    Ciphertext,
    combine,
    decode,
    opening_place,
    sealed_context,
    uncover,
)
from wallflower.protocol.secure_sum.sealed.committee import (
    UnprovedError,
    WrongOpeningError,
)
from wallflower.protocol.secure_sum.sealed.group import (
    DegenerateSumError,
    Point,
    shows_equality,
    total,
)
from wallflower.protocol.secure_sum.session import SENT, PartyId, SecureSum, Step
from wallflower.protocol.secure_sum.threat import least_contributors
from wallflower.protocol.wire.sealed_pb2 import (
    OpenAnswer,
    OpenRequest,
    SealAnswer,
    SealedServerState,
    SealRequest,
)
from wallflower.protocol.wire.secure_sum_pb2 import Envelope
from wallflower.protocol.wire.sum_state_pb2 import ServerState
from wallflower.strategy.secure_sum.contributions import (
    ContributionCheck,
    without_range,
)
from wallflower.strategy.secure_sum.keyring import SharedKey
from wallflower.strategy.secure_sum.machine import ServerMachine, SessionParams

# Proofs checked together: their common part is spread over as many, and the last ones
# are all that is left to do when the set closes.
PROVED_AT_ONCE = 64


class SealedServer(ServerMachine):
    """Collects ciphertexts, then members' answers about their sum."""

    def __init__(self, opening: SessionParams) -> None:
        super().__init__(opening)
        mechanism = cohort_mechanism(opening.spec)
        self._low = -mechanism.noise_bound
        self._high = self._low + mechanism.modulus - 1
        if mechanism.modulus > LARGEST_WINDOW:
            raise InputError(
                "range of a sealed sum",
                mechanism.modulus,
                f"at most {LARGEST_WINDOW}; `secagg-plus` has no such bound",
            )
        self._truncation: Truncation | None = (
            truncation(mechanism) if opening.spec.proved_inputs else None
        )
        self._key: SharedKey | None = opening.keyring.dealt
        self._bound = b""
        self._sealed: dict[PartyId, tuple[SealAnswer, Ciphertext]] = {}
        self._unproved: list[PartyId] = []  # whose proofs of range wait for company
        self._kept: dict[PartyId, SealAnswer] = {}
        self._closed: list[PartyId] = []
        self._users = 0
        self._sum: Ciphertext | None = None
        self._asking: list[PartyId] = []  # to open the sum, now
        self._asked: set[PartyId] = set()  # ever
        self._answers: dict[PartyId, OpenAnswer] = {}
        self._left_out: dict[PartyId, str] = {}

    @property
    def key(self) -> SharedKey:
        """The key that this cohort is sealed under."""
        assert self._key is not None
        return self._key

    @property
    def _check(self) -> ContributionCheck:
        return ContributionCheck(self._bound, self.opening.trust, self._truncation)

    def _first(self) -> Step:
        if self._key is None:
            return self._void("no-dealing", "the run has no key to seal under yet")
        if self._key.threat != self.threat:
            return self._void("no-dealing", "the run's key was made for another threat")
        self._bound = sealed_context(self.context, self._key.name)
        if self.opening.contributions is not None:
            return self._close_seats(self.opening.contributions())
        return self.enter(SEAL)

    def _close_seats(self, answers: Iterable[tuple[PartyId, bytes]]) -> Step:
        """Close the set of people who arrived and answered."""
        for party, body in answers:
            answer = parse(SealAnswer, body)
            pair = Ciphertext(Point.parse(answer.one), Point.parse(answer.two))
            self._sealed[party] = answer, pair
        for party in self.parties.keys() - self._sealed.keys():
            self.lost[party] = "no-answer"
        return self._close_set()

    def _concerns(self, party: PartyId) -> bool:
        if self.stage == OPEN:
            return party in self.key.places
        return super()._concerns(party)

    def _messages(self) -> dict[PartyId, bytes]:
        if self.stage == SEAL:
            payload = SealRequest(
                roster=self.roster_note, dealing=self.key.note
            ).SerializeToString()
            asked = [p for p in self.parties if p not in self.lost]
            return {party: self.envelope(party, payload) for party in asked}
        payload = self._open_request().SerializeToString()
        return {party: self.envelope(party, payload) for party in self._asking}

    def _open_request(self) -> OpenRequest:
        assert self._sum is not None
        request = OpenRequest(
            roster=self.roster_note,
            dealing_id=self.key.dealing_id,
            dealing=self.key.name,
            dealers=self.key.dealers,
            contributors=len(self._closed),
            users=self._users,
            sum=bytes(self._sum.one),
        )
        if self.threat.malicious_server:
            request.senders.extend(sorted(self._closed))
            request.sealed.extend(self._kept[p] for p in sorted(self._closed))
        return request

    @property
    def out(self) -> Mapping[PartyId, str]:
        """Why nodes are not in the sum; members that did not open it may well be."""
        return self.lost if self._sum is None else self._left_out

    @property
    def stage_complete(self) -> bool:
        """True when nobody is left to hear, or t members have opened the sum."""
        enough = self.stage == OPEN and len(self._answers) >= self.key.threshold
        return enough or not self.awaited

    def advance(self) -> Step:
        """End the stage; members that were not needed any more were not silent."""
        if self.stage_complete:
            self.awaited = set()
        return super().advance()

    def _take(self, party: PartyId, envelope: Envelope) -> None:
        if self.stage == SEAL:
            self._take_sealed(party, parse(SealAnswer, envelope.payload))
        else:
            self._take_opening(party, parse(OpenAnswer, envelope.payload))

    def _take_sealed(self, party: PartyId, answer: SealAnswer) -> None:
        sealed = self._check.check(party, answer, self.parties[party])
        self._sealed[party] = answer, sealed
        if self._truncation is not None:
            self._unproved.append(party)
            if len(self._unproved) >= PROVED_AT_ONCE:
                self._drop_unproved()

    def _take_opening(self, party: PartyId, answer: OpenAnswer) -> None:
        assert self._sum is not None
        share = Point.parse(answer.share)
        place = opening_place(
            self._bound,
            bytes(self._sum.one),
            len(self._closed),
            self._users,
            party,
        )
        if not shows_equality(
            self.key.key_of(party), self._sum.one, share, answer.proof, place
        ):
            raise WrongOpeningError(f"{party} did not open with the key it was dealt")
        self._answers[party] = answer

    def _next(self) -> Step:
        if self.stage == SEAL:
            return self._close_set()
        if len(self._answers) < self.key.threshold:
            for member in self._asked - self._answers.keys():
                self.key.note_failed(member)
            if len(self._asked) < len(self.key.places):
                return self._ask_members()
        return self._add_up()

    def _ask_members(self) -> Step:
        """Put the sum to as many members as will do; to all others if they did not."""
        most = len(self.key.places) if self._asked else self.key.asked_first
        left = [p for p in self.key.by_promise() if p not in self._asked]
        self._asking = left[:most]
        self._asked.update(self._asking)
        return self.enter(OPEN)

    @property
    def chosen(self) -> Set[PartyId] | None:
        """Who is in the sum, once that is fixed."""
        return frozenset(self._closed) or None

    def contributors(self) -> Set[PartyId]:
        """Return who contributed what is in range, so far."""
        self._drop_unproved()
        return self._sealed.keys()

    def can_close_without(self, parties: Set[PartyId]) -> bool:
        """Return whether contributors and quorum suffice without these."""
        return self._too_few(self._sealed.keys() - parties) is None

    def leave_out(self, parties: Set[PartyId], code: str) -> None:
        """Leave contributors out of the sum, for the reason `code`."""
        for party in parties & self._sealed.keys():
            self.lost[party] = code
            del self._sealed[party]

    def _too_few(self, parties: Set[PartyId]) -> tuple[str, str] | None:
        """Say why these contributors give no sum, or nothing."""
        needed = least_contributors(self.threat, self.roster_note.size)
        if len(parties) < needed:
            detail = f"{len(parties)} nodes contributed; {needed} needed"
            return "too-few-contributors", detail
        users = sum(self._sealed[party][0].users for party in parties)
        quorum = self.opening.spec.quorum
        if users < quorum:
            return "quorum-not-met", f"{users} users contributed; quorum {quorum}"
        return None

    def _close_set(self) -> Step:
        self._drop_unproved()
        if (why := self._too_few(self._sealed.keys())) is not None:
            return self._void(*why)
        self._closed = [party for party in self.parties if party in self._sealed]
        self._users = sum(self._sealed[party][0].users for party in self._closed)
        chosen = [self._sealed[party][1] for party in self._closed]
        try:
            self._sum = Ciphertext(
                total([one.one for one in chosen]), total([one.two for one in chosen])
            )
        except DegenerateSumError:
            return self._void("degenerate-sum", "the contributions cancel each other")
        if self.threat.malicious_server:
            self._kept = {p: without_range(self._sealed[p][0]) for p in self._closed}
        self._sealed = {}
        self._left_out, self.lost = self.lost, {}
        return self._ask_members()

    def _drop_unproved(self) -> None:
        """Leave out, and name, who sent what is not in range or not well formed."""
        parties, self._unproved = self._unproved, []
        claims = [self._check.claim(party, *self._sealed[party]) for party in parties]
        for place in ranges.wrong_claims(self.key.public, claims):
            self.lost[parties[place]] = UnprovedError.code
            self.found(parties[place], SENT, UnprovedError.code)
            del self._sealed[parties[place]]

    def _add_up(self) -> Step:
        key = self.key
        for member in self._answers:
            key.note_opened(member)
        for member in self.lost:
            key.note_failed(member)
        if len(self._answers) < key.threshold:
            return self._void(
                "too-few-openings",
                f"{len(self._answers)} committee members answered; "
                f"{key.threshold} needed",
            )
        assert self._sum is not None
        chosen = sorted(self._answers, key=lambda member: key.places[member])
        shares = {
            key.places[member]: Point.parse(self._answers[member].share)
            for member in chosen[: key.threshold]
        }
        spec = self.opening.spec
        found = decode(uncover(self._sum.two, combine(shares)), self._low, self._high)
        if found is None:
            return self._void(
                "sum-out-of-range",
                f"no number from {self._low} to {self._high} is the sum of "
                f"{len(self._closed)} nodes: noise beyond its bound, or a contribution "
                "that is no honest one",
            )
        return self._end(
            SecureSum(
                found % spec.modulus, spec.modulus, tuple(self._closed), self._users
            )
        )

    def _write(self, state: ServerState) -> None:
        own = SealedServerState(users=self._users, left_out=self._left_out)
        if self._key is not None:
            own.dealing.CopyFrom(self._key.state)
        if self._sum is not None:
            own.one, own.two = bytes(self._sum.one), bytes(self._sum.two)
        for party, answer in self._answers.items():
            own.openings[party] = answer.SerializeToString()
        for party, (sealed, _) in self._sealed.items():
            state.uploads[party] = sealed.SerializeToString()
        for party, sealed in self._kept.items():
            state.uploads[party] = sealed.SerializeToString()
        state.closed.extend(self._closed)
        state.own = own.SerializeToString(deterministic=True)

    def _read(self, state: ServerState) -> None:
        own = parse(SealedServerState, state.own)
        if not own.HasField("dealing"):
            return
        known = self.opening.keyring.dealt
        if known is None or known.state != own.dealing:
            known = SharedKey(own.dealing)
            if self.opening.keyring.dealt is None:
                self.opening.keyring.deal(known)
        self._key = known
        self._bound = sealed_context(self.context, known.name)
        self._closed, self._users = list(state.closed), own.users
        self._left_out = dict(own.left_out)
        if own.one:
            self._sum = Ciphertext(Point.parse(own.one), Point.parse(own.two))
            self._kept = {p: parse(SealAnswer, b) for p, b in state.uploads.items()}
        for party, body in state.uploads.items():
            if not own.one:
                answer = parse(SealAnswer, body)
                pair = Ciphertext(Point.parse(answer.one), Point.parse(answer.two))
                self._sealed[party] = answer, pair
        self._unproved = list(self._sealed) if self._truncation is not None else []
        self._answers = {p: parse(OpenAnswer, b) for p, b in own.openings.items()}
        if self.stage == OPEN:
            self._asking = sorted(self.awaited)
            self._asked = self.awaited | self._answers.keys() | self.lost.keys()

    def _forget(self) -> None:
        self._sealed = {}
        self._unproved = []
        self._kept = {}
        self._answers = {}
