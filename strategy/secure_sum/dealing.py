"""`sealed`, the server's side of a dealing: enlist, deal, check.

The server carries sealed shares and judges complaints; it never holds a share. What
comes out is a `SharedKey` in the run's keyring.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Self

from wallflower.protocol.errors import (
    MalformedMessageError,
    ProtocolError,
    WrongContextError,
)
from wallflower.protocol.secure_sum.backends import CHECK, DEAL, ENLIST
from wallflower.protocol.secure_sum.context import parse
from wallflower.protocol.secure_sum.sealed import feldman, tree
from wallflower.protocol.secure_sum.sealed.committee import (
    FalseComplaintError,
    Seats,
    WrongShareError,
    committee_digest,
    is_dealing,
    read_committee,
    stated,
    verify_key,
    verify_statement,
)
from wallflower.protocol.secure_sum.sealed.dealing import (
    Dealing,
    Holder,
    Terms,
    sealed_for,
    upheld,
)
from wallflower.protocol.secure_sum.sealed.group import DegenerateSumError, Point
from wallflower.protocol.secure_sum.session import SENT, KeyReady, PartyId, Step
from wallflower.protocol.wire.sealed_pb2 import (
    CheckAnswer,
    CheckRequest,
    DealAnswer,
    DealerStatement,
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
from wallflower.strategy.secure_sum.keyring import SharedKey
from wallflower.strategy.secure_sum.machine import ServerMachine, SessionParams


@dataclass(frozen=True, slots=True)
class _Taken:
    """A dealer's answer, read."""

    answer: DealAnswer
    dealing: Dealing
    statement: DealerStatement
    commitments: list[Point]
    sealed: Mapping[PartyId, bytes]  # member -> its share

    @classmethod
    def of(
        cls,
        dealer: PartyId,
        answer: DealAnswer,
        terms: Terms,
        holders: Iterable[Holder],
    ) -> Self:
        """Read an answer of a dealer that knows its secret."""
        points, sealed = answer.commitments, answer.sealed
        dealing = Dealing.of(dealer, answer.proof, points, sealed)
        receivers = sealed_for(holders, dealer)
        if len(dealing.sealed) != len(receivers):
            raise MalformedMessageError("sealed shares are missing or too many")
        shares = dict(zip(receivers, dealing.sealed, strict=True))
        statement = stated(dealing, answer)
        return cls(answer, dealing, statement, dealing.check(terms), shares)

    def shown(self, *, lying: bool) -> tuple[DealtShare, Mapping[PartyId, bytes]]:
        """What all members are shown, and the way to each seal where it is checked."""
        share = DealtShare(
            statement=self.statement,
            commitments=self.answer.commitments,
        )
        share.statement.ClearField("constant")
        if not lying:
            share.seals = self.dealing.seals
            return share, {}
        ways = tree.paths(self.dealing.sealed)
        return share, dict(zip(self.sealed, ways, strict=True))


class DealingServer(ServerMachine):
    """Brings a committee to a key that nobody holds."""

    def __init__(self, opening: SessionParams) -> None:
        super().__init__(opening)
        if not is_dealing(opening.spec):
            raise WrongContextError("a dealing takes no rewards: its mechanism is none")
        self._known_seats: Seats | None = None
        self._keys: dict[PartyId, MemberKey] = {}
        self._dealings: dict[PartyId, _Taken] = {}
        self._checked: set[PartyId] = set()
        self._wrong: set[PartyId] = set()
        self._asking: list[PartyId] = []  # to deal now
        self._asked: set[PartyId] = set()  # to deal, ever
        self._body = b""
        self._holders: dict[PartyId, Holder] = {}
        self._known_terms: Terms | None = None

    @property
    def _seats(self) -> Seats:
        if self._known_seats is None:
            self._known_seats = Seats.drawn(self.context, self.threat, self.parties)
        return self._known_seats

    @property
    def _terms(self) -> Terms:
        assert self._known_terms is not None
        return self._known_terms

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
        return self._check_messages()

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

    def _check_messages(self) -> dict[PartyId, bytes]:
        """Show every member all dealings, and of the seals its own."""
        lying, dealings = self.threat.malicious_server, self._dealings.values()
        shown = [one.shown(lying=lying) for one in dealings]
        request = CheckRequest(
            roster=self.known_note,
            committee=self._body if lying else b"",
            committee_digest=b"" if lying else self._terms.committee,
            shares=[share for share, _ in shown],
        )
        # Where fewer dealers may come to stand, a member must check each by itself.
        final = not lying and len(dealings) == self._seats.sizes.accepted
        keys = self._keys_of(dealings) if final else []
        messages = {}
        for party, holder in self._holders.items():
            if party in self.lost:
                continue
            if not lying:
                request.place = holder.place
            if keys:
                request.key = bytes(keys[holder.place - 1])
            for share, one, (_, ways) in zip(
                request.shares, dealings, shown, strict=True
            ):
                share.sealed = one.sealed.get(party, b"")
                share.path = ways.get(party, b"")
            messages[party] = self.envelope(party, request.SerializeToString())
        return messages

    def _keys_of(self, dealings: Iterable[_Taken]) -> list[Point]:
        """s_i·G by place, if all of these count; none where points cancel."""
        last = max(one.place for one in self._holders.values())
        summed = self._sum_commitments(dealings)
        try:
            return [] if summed is None else feldman.share_points(summed, last)
        except DegenerateSumError:
            return []

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
        taken = _Taken.of(party, answer, self._terms, self._holders.values())
        statement = taken.dealing.statement
        verify_statement(statement, answer, self._terms, self.opening.trust)
        self._dealings[party] = taken

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
        taken = self._dealings.get(complaint.dealer)
        if taken is None or party not in taken.sealed:
            return False
        try:
            return upheld(
                terms=self._terms,
                holder=self._holders[party],
                dealing=taken.dealing,
                sealed=taken.sealed[party],
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
        threshold = self._seats.sizes.threshold
        self._known_terms = Terms(self.context, committee_digest(body), threshold)

    def _finish(self) -> Step:
        sizes = self._seats.sizes
        members = [p for p in self._holders if p in self._checked - self._wrong]
        if len(members) < sizes.threshold:
            return self._too_few("members", len(members), sizes.threshold)
        accepted = [d for p, d in self._dealings.items() if p not in self._wrong]
        if len(accepted) < sizes.accepted:
            self.opening.keyring.wary = True
            return self._too_few("dealers", len(accepted), sizes.accepted)
        summed = self._sum_commitments(accepted)
        if summed is None:
            return self._void("degenerate-key", "the dealers' commitments cancel")
        dealt = SharedKey(
            DealingState(
                spec=self.opening.spec,
                roster=self.roster_note,
                committee=self._body,
                accepted=[one.statement for one in accepted],
                commitments=feldman.commitment_bytes(summed),
                members=members,
            ),
            self._terms,
        )
        self.opening.keyring.deal(dealt)
        return self._end(KeyReady(dealt.dealing_id, dealt.dealers, dealt.members))

    def _sum_commitments(self, dealings: Iterable[_Taken]) -> list[Point] | None:
        """Add the commitments up; None where they cancel."""
        try:
            return feldman.add_up([one.commitments for one in dealings])
        except DegenerateSumError:
            return None

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
        for party, taken in self._dealings.items():
            progress.dealings[party] = taken.answer.SerializeToString()
        progress.committee = self._body
        state.own = progress.SerializeToString(deterministic=True)

    def _read(self, state: ServerState) -> None:
        progress = parse(DealingProgress, state.own)
        self._keys = {p: parse(MemberKey, body) for p, body in progress.keys.items()}
        if progress.committee:
            self._set_committee(progress.committee)
        for party in self._holders:
            if party in progress.dealings:
                answer = parse(DealAnswer, progress.dealings[party])
                holders = self._holders.values()
                self._dealings[party] = _Taken.of(party, answer, self._terms, holders)
        self._checked = set(progress.checked)
        self._wrong = set(progress.wrong)
        self._asked = set(progress.asked)
        self._asking = [party for party in self._holders if party in self._asked]

    def _forget(self) -> None:
        self._dealings = {}
