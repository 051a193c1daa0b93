"""`sealed`, the server's side of a dealing: enlist, deal, check.

The server carries sealed shares and judges complaints; it never holds a share. What
comes out is a `DealtKey` in the run's keyring.
"""

from __future__ import annotations

from wallflower.protocol.errors import (
    MalformedMessageError,
    ProtocolError,
    WrongContextError,
)
from wallflower.protocol.secure_sum.envelope import parse
from wallflower.protocol.secure_sum.sealed import feldman
from wallflower.protocol.secure_sum.sealed.committee import (
    FalseComplaintError,
    Seats,
    WrongShareError,
    committee_digest,
    is_dealing,
    read_committee,
    read_statement,
    verify_key,
)
from wallflower.protocol.secure_sum.sealed.dealing import (
    SEALED_SHARE_BYTES,
    Dealing,
    Holder,
    Terms,
    upheld,
)
from wallflower.protocol.secure_sum.sealed.group import DegenerateSumError, Point
from wallflower.protocol.secure_sum.session import SENT, Dealt, PartyId, Step
from wallflower.protocol.secure_sum.stages import CHECK, DEAL, ENLIST
from wallflower.protocol.wire.sealed_pb2 import (
    CheckAnswer,
    CheckRequest,
    DealAnswer,
    DealingProgress,
    DealingState,
    DealRequest,
    DealtCommittee,
    DealtShare,
    EnlistRequest,
    MemberKey,
    ShareComplaint,
)
from wallflower.protocol.wire.secure_sum_pb2 import Envelope
from wallflower.protocol.wire.sum_state_pb2 import ServerState
from wallflower.strategy.secure_sum.dealt import DealtKey
from wallflower.strategy.secure_sum.machine import Opening, ServerMachine


class DealingServer(ServerMachine):
    """Brings a committee to a key that nobody holds."""

    def __init__(self, opening: Opening) -> None:
        super().__init__(opening)
        if not is_dealing(opening.spec):
            raise WrongContextError("a dealing takes no rewards: its mechanism is none")
        self._known_seats: Seats | None = None
        self._keys: dict[PartyId, MemberKey] = {}
        self._dealings: dict[PartyId, DealAnswer] = {}
        self._checked: set[PartyId] = set()
        self._wrong: set[PartyId] = set()
        self._asking: list[PartyId] = []  # to deal now
        self._asked: set[PartyId] = set()  # to deal, ever
        self._body = b""
        self._holders: dict[PartyId, Holder] = {}

    @property
    def _seats(self) -> Seats:
        if self._known_seats is None:
            self._known_seats = Seats.drawn(self.context, self.threat, self.parties)
        return self._known_seats

    @property
    def _terms(self) -> Terms:
        return Terms(
            self.context, committee_digest(self._body), self._seats.sizes.threshold
        )

    def _first(self) -> Step:
        assert self._seats
        return self.enter(ENLIST)

    def _messages(self) -> dict[PartyId, bytes]:
        if self.stage == ENLIST:
            payload = EnlistRequest(roster=self.roster_note).SerializeToString()
            return {p: self.envelope(p, payload) for p in self._seats.places}
        if self.stage == DEAL:
            payload = DealRequest(
                roster=self.known_note, committee=self._body
            ).SerializeToString()
            return {p: self.envelope(p, payload) for p in self._asking}
        return {
            party: self.envelope(party, self._check_request(position))
            for position, party in enumerate(self._holders)
            if party not in self.lost
        }

    def _ask_dealers(self) -> Step:
        """Ask as many as are missing: for every one that was silent the next one.

        Where an earlier dealing of the run failed by wrong shares, everybody deals.
        """
        sizes, there = self._seats.sizes, len(self._dealings)
        left = [p for p in self._holders if p not in self._asked]
        wanted = sizes.members if self.opening.keyring.wary else sizes.dealers
        self._asking = left[: max(0, wanted - there)]
        if not self._asking:
            return self._too_few("dealers", there, sizes.accepted)
        self._asked.update(self._asking)
        return self.enter(DEAL)

    def _check_request(self, position: int) -> bytes:
        start = position * SEALED_SHARE_BYTES
        return CheckRequest(
            roster=self.known_note,
            committee=self._body,
            shares=[
                DealtShare(
                    statement=one.statement,
                    commitments=one.commitments,
                    ephemeral=one.ephemeral,
                    sealed=one.sealed[start : start + SEALED_SHARE_BYTES],
                )
                for one in self._dealings.values()
            ],
        ).SerializeToString()

    def _take(self, party: PartyId, envelope: Envelope) -> None:
        if self.stage == ENLIST:
            self._take_key(party, parse(MemberKey, envelope.payload))
        elif self.stage == DEAL:
            self._take_dealing(party, parse(DealAnswer, envelope.payload))
        else:
            self._take_check(party, parse(CheckAnswer, envelope.payload))

    def _take_key(self, party: PartyId, key: MemberKey) -> None:
        Point.parse(key.key)
        if self.opening.trust is not None:
            verify_key(key, self.context, party, self.opening.trust)
        self._keys[party] = key

    def _take_dealing(self, party: PartyId, answer: DealAnswer) -> None:
        if answer.statement.dealer != party:
            raise WrongContextError("a dealer speaks for another")
        read_statement(answer.statement, self._terms, self.opening.trust)
        self._read_dealing(answer).check(self._terms)
        self._dealings[party] = answer

    def _read_dealing(self, answer: DealAnswer) -> Dealing:
        width, sealed = SEALED_SHARE_BYTES, answer.sealed
        if len(sealed) != width * len(self._holders):
            raise MalformedMessageError("sealed shares are missing or too many")
        return Dealing(
            read_statement(answer.statement, self._terms, None),
            answer.commitments,
            answer.ephemeral,
            tuple(sealed[i : i + width] for i in range(0, len(sealed), width)),
        )

    def _take_check(self, party: PartyId, answer: CheckAnswer) -> None:
        accused = [complaint.dealer for complaint in answer.complaints]
        if len(set(accused)) != len(accused):
            raise MalformedMessageError("a dealer is accused twice in one answer")
        for complaint in answer.complaints:
            if not self._holds(party, complaint):
                raise FalseComplaintError(
                    f"{party} complains about a share of {complaint.dealer[:80]} "
                    "without showing that it is wrong"
                )
        for dealer in accused:
            self._wrong.add(dealer)
            self.lost[dealer] = WrongShareError.code
            self.found(dealer, SENT, WrongShareError.code)
        self._checked.add(party)

    def _holds(self, party: PartyId, complaint: ShareComplaint) -> bool:
        answer = self._dealings.get(complaint.dealer)
        if answer is None:
            return False
        dealing = self._read_dealing(answer)
        sealed = dealing.sealed[list(self._holders).index(party)]
        try:
            return upheld(
                terms=self._terms,
                holder=self._holders[party],
                dealing=dealing,
                sealed=sealed,
                shared=complaint.shared,
                proof=complaint.proof,
            )
        except ProtocolError:
            return False

    def _next(self) -> Step:
        if self.stage == ENLIST:
            return self._seat()
        if self.stage == DEAL:
            enough = len(self._dealings) >= self._seats.sizes.accepted
            return self.enter(CHECK) if enough else self._ask_dealers()
        return self._finish()

    def _seat(self) -> Step:
        sizes = self._seats.sizes
        if len(self._keys) < sizes.threshold:
            return self._too_few("members", len(self._keys), sizes.threshold)
        members = [p for p in self._seats.places if p in self._keys]
        self._set_committee(
            DealtCommittee(
                members=members,
                places=[self._seats.places[member] for member in members],
                keys=[self._keys[member] for member in members],
            ).SerializeToString(deterministic=True)
        )
        return self._ask_dealers()

    def _set_committee(self, body: bytes) -> None:
        self._body = body
        self._holders = {one.party: one for one in read_committee(body)}

    def _finish(self) -> Step:
        sizes = self._seats.sizes
        members = [p for p in self._holders if p in self._checked - self._wrong]
        if len(members) < sizes.threshold:
            return self._too_few("members", len(members), sizes.threshold)
        accepted = [a for p, a in self._dealings.items() if p not in self._wrong]
        if len(accepted) < sizes.accepted:
            self.opening.keyring.wary = True
            return self._too_few("dealers", len(accepted), sizes.accepted)
        commitments = [
            feldman.read_commitments(one.commitments, sizes.threshold)
            for one in accepted
        ]
        try:
            summed = feldman.commitment_bytes(feldman.added(commitments))
        except DegenerateSumError:
            return self._void("degenerate-key", "the dealers' commitments cancel")
        dealt = DealtKey(
            DealingState(
                spec=self.opening.spec,
                roster=self.roster_note,
                committee=self._body,
                accepted=[one.statement for one in accepted],
                commitments=summed,
                members=members,
            )
        )
        self.opening.keyring.deal(dealt)
        return self._end(Dealt(dealt.dealing_id, dealt.dealers, dealt.members))

    def _too_few(self, who: str, there: int, needed: int) -> Step:
        detail = f"{there} {who} of the committee answered well; {needed} needed"
        if self._wrong:
            detail += f"; {', '.join(sorted(self._wrong)[:5])} dealt wrong shares"
        return self._void(f"too-few-{who}", detail)

    def _write(self, state: ServerState) -> None:
        progress = DealingProgress(
            checked=sorted(self._checked),
            wrong=sorted(self._wrong),
            asked=sorted(self._asked),
        )
        for party, key in self._keys.items():
            progress.keys[party] = key.SerializeToString()
        for party, dealing in self._dealings.items():
            progress.dealings[party] = dealing.SerializeToString()
        progress.committee = self._body
        state.own = progress.SerializeToString(deterministic=True)

    def _read(self, state: ServerState) -> None:
        progress = parse(DealingProgress, state.own)
        self._keys = {p: parse(MemberKey, body) for p, body in progress.keys.items()}
        if progress.committee:
            self._set_committee(progress.committee)
        self._dealings = {
            party: parse(DealAnswer, progress.dealings[party])
            for party in self._holders
            if party in progress.dealings
        }
        self._checked = set(progress.checked)
        self._wrong = set(progress.wrong)
        self._asked = set(progress.asked)
        self._asking = [party for party in self._holders if party in self._asked]

    def _forget(self) -> None:
        self._dealings = {}
