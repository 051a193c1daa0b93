"""`committee`, the server's side: keys, contribute, tally.

The server moves sealed shares and never opens one: it sees the roster, ciphertexts,
the closed set and t to c members' sums, of which any t give the total mod m.
"""

from __future__ import annotations

from wallflower.protocol.errors import InputError, MalformedMessageError, ProtocolError
from wallflower.protocol.secure_sum.committee_seals import (
    SEAL_BYTES,
    committee_digest,
    split,
)
from wallflower.protocol.secure_sum.context import draw_order
from wallflower.protocol.secure_sum.envelope import parse
from wallflower.protocol.secure_sum.primes import is_prime
from wallflower.protocol.secure_sum.recovery import (
    InconsistentSharesError,
    recover_integer,
)
from wallflower.protocol.secure_sum.seals import SALT_BYTES
from wallflower.protocol.secure_sum.session import (
    OUT,
    SENT,
    SUSPECT,
    UNKNOWN,
    PartyId,
    SecureSum,
    Step,
)
from wallflower.protocol.secure_sum.stages import CONTRIBUTE, KEYS, TALLY
from wallflower.protocol.secure_sum.threat import committee_size, least_contributors
from wallflower.protocol.wire.secure_sum_pb2 import (
    ClosedSet,
    Committee,
    ContributeAnswer,
    ContributeRequest,
    Envelope,
    KeysRequest,
    PartyKey,
    TallyAnswer,
    TallyRequest,
)
from wallflower.protocol.wire.sum_state_pb2 import ServerState
from wallflower.strategy.secure_sum.machine import Opening, ServerMachine


class CommitteeServer(ServerMachine):
    """Collects members' keys, then sealed shares, then members' sums."""

    def __init__(self, opening: Opening) -> None:
        super().__init__(opening)
        if not is_prime(opening.spec.modulus):
            raise InputError(
                "modulus", opening.spec.modulus, "a prime (see backend_modulus)"
            )
        self._members: list[PartyId] = []
        self._keys: dict[PartyId, bytes] = {}
        self._uploads: dict[PartyId, ContributeAnswer] = {}
        self._closed: list[PartyId] = []
        self._totals: dict[PartyId, int] = {}
        self._complaints: dict[PartyId, int] = {}

    def _first(self) -> Step:
        spec = self.opening.spec
        sizes = committee_size(self.threat, len(self.parties))
        if spec.modulus <= sizes.helpers:
            raise InputError("modulus", spec.modulus, f"above {sizes.helpers} members")
        order = draw_order(self.context, list(self.parties))
        self._members = order[: sizes.helpers]
        self._keys = self._known_keys()
        if len(self._keys) == len(self._members):
            return self.enter(CONTRIBUTE)
        return self.enter(KEYS)

    def _messages(self) -> dict[PartyId, bytes]:
        if self.stage == KEYS:
            payload = KeysRequest(roster=self.roster_note).SerializeToString()
            asked = [m for m in self._members if m not in self._keys]
            return {member: self.envelope(member, payload) for member in asked}
        if self.stage == CONTRIBUTE:
            payload = ContributeRequest(
                roster=self.roster_note, committee=self._committee()
            ).SerializeToString()
            asked = [p for p in self.parties if p not in self.lost]
            return {party: self.envelope(party, payload) for party in asked}
        return self._tally_messages()

    def _tally_messages(self) -> dict[PartyId, bytes]:
        uploads = [self._uploads[party] for party in self._closed]
        closed = ClosedSet(
            roster=self.roster_note,
            committee=committee_digest(self._committee()),
            contributors=self._closed,
            keys=[upload.key for upload in uploads],
            salts=b"".join(upload.salt for upload in uploads),
            users=[upload.users for upload in uploads],
        ).SerializeToString()
        seals = [
            split(upload.sealed, len(self._members), SEAL_BYTES) for upload in uploads
        ]
        return {
            member: self.envelope(
                member,
                TallyRequest(
                    closed=closed, sealed=b"".join(row[position] for row in seals)
                ).SerializeToString(),
            )
            for position, member in enumerate(self._members)
            # A node that broke the rules is not asked; one that was merely silent is.
            if member not in self.lost
        }

    def _committee(self) -> bytes:
        return Committee(
            members=self._members,
            keys=[PartyKey.FromString(self._keys[member]) for member in self._members],
        ).SerializeToString(deterministic=True)

    def _take(self, party: PartyId, envelope: Envelope) -> None:
        if self.stage == KEYS:
            self._take_key(party, parse(PartyKey, envelope.payload))
        elif self.stage == CONTRIBUTE:
            self._take_upload(party, parse(ContributeAnswer, envelope.payload))
        else:
            self._take_total(party, parse(TallyAnswer, envelope.payload))

    def _take_key(self, party: PartyId, key: PartyKey) -> None:
        self.check_users(party, self.parties[party], self.check_key(party, key))
        body = key.SerializeToString()
        self._keys[party] = body
        if key.whole_run:
            self.opening.keyring.remember(party, body)

    def _known_keys(self) -> dict[PartyId, bytes]:
        """Give members' keys of earlier cohorts, of those who may still use them."""
        keyring, known = self.opening.keyring, {}
        for party, body in keyring.known(self._members).items():
            try:
                key = PartyKey.FromString(body)
                self.check_users(party, self.parties[party], self.check_key(party, key))
            except ProtocolError:
                keyring.forget(party)  # revoked or expired since: it is asked again
            else:
                known[party] = body
        return known

    def _take_upload(self, party: PartyId, upload: ContributeAnswer) -> None:
        self.check_users(party, upload.users, self.check_key(party, upload.key))
        if len(upload.salt) != SALT_BYTES:
            raise MalformedMessageError("a salt of the wrong length")
        if len(upload.sealed) != len(self._members) * SEAL_BYTES:
            raise MalformedMessageError("seals are missing or too many")
        self._uploads[party] = upload

    def _take_total(self, party: PartyId, answer: TallyAnswer) -> None:
        kind = answer.WhichOneof("outcome")
        if kind == "complaint":
            for contributor in set(answer.complaint.contributors):
                if contributor in self._uploads:
                    seen = self._complaints.get(contributor, 0)
                    self._complaints[contributor] = seen + 1
            self.lost[party] = "complaint"
            self.found(party, OUT, "complaint")
        elif kind != "total" or answer.total >= self.opening.spec.modulus:
            raise MalformedMessageError("a tally outside ℤ_m")
        else:
            self._totals[party] = answer.total

    def _next(self) -> Step:
        if self.stage == KEYS:
            return self._open_contributions()
        if self.stage == CONTRIBUTE:
            return self._close_set()
        return self._add_up()

    def _open_contributions(self) -> Step:
        threshold = committee_size(self.threat, len(self.parties)).threshold
        self._members = [m for m in self._members if m in self._keys]
        if len(self._members) < threshold:
            return self._void(
                "too-few-members",
                f"{len(self._members)} committee members answered; {threshold} needed",
            )
        return self.enter(CONTRIBUTE)

    def _close_set(self) -> Step:
        spec = self.opening.spec
        self._closed = [party for party in self.parties if party in self._uploads]
        needed = least_contributors(self.threat, len(self.parties))
        if len(self._closed) < needed:
            return self._void(
                "too-few-contributors",
                f"{len(self._closed)} nodes contributed; {needed} needed",
            )
        users = self._users()
        if users < spec.quorum:
            return self._void(
                "quorum-not-met", f"{users} users contributed; quorum {spec.quorum}"
            )
        return self.enter(TALLY)

    def _users(self) -> int:
        return sum(self._uploads[party].users for party in self._closed)

    def _add_up(self) -> Step:
        spec = self.opening.spec
        for member in self._members:
            if member not in self._totals:
                self.opening.keyring.forget(member)
        self._judge_complaints()
        threshold = committee_size(self.threat, len(self.parties)).threshold
        if len(self._totals) < threshold:
            return self._void("too-few-tallies", self._shortfall(threshold))
        shares = {
            position: self._totals[member]
            for position, member in enumerate(self._members, 1)
            if member in self._totals
        }
        try:
            recovered = recover_integer(shares, threshold, spec.modulus)
        except InconsistentSharesError:
            self.found("", UNKNOWN, "inconsistent-tallies")
            return self._void(
                "inconsistent-tallies",
                f"{len(shares)} members' sums contradict each other, or one "
                "contributor's shares do; no sum can be believed",
            )
        for position in recovered.wrong:
            # Its own doing, or a contributor's who sealed for it alone a share that
            # lies on no polynomial: the numbers are the same.
            member = self._members[position - 1]
            self.lost[member] = "tally-does-not-fit"
            self.found(member, SUSPECT, "tally-does-not-fit")
        return self._end(
            SecureSum(
                recovered.secret, spec.modulus, tuple(self._closed), self._users()
            )
        )

    def _judge_complaints(self) -> None:
        """Say who sealed badly where more members say so than can be lying."""
        colluders = self.threat.corrupt_nodes(len(self.parties))
        for contributor, members in sorted(self._complaints.items()):
            proven = members > colluders
            self.found(contributor, SENT if proven else SUSPECT, "seals-do-not-open")

    def _shortfall(self, threshold: int) -> str:
        text = f"{len(self._totals)} committee members answered; {threshold} needed"
        if self._complaints:
            blamed = max(self._complaints, key=lambda party: self._complaints[party])
            text += f"; {self._complaints[blamed]} could not open what {blamed} sealed"
        return text

    def _write(self, state: ServerState) -> None:
        state.members.extend(self._members)
        state.closed.extend(self._closed)
        for party, body in self._keys.items():
            state.keys[party] = body
        for party, upload in self._uploads.items():
            state.uploads[party] = upload.SerializeToString()
        for party, total in self._totals.items():
            state.numbers[party] = total

    def _read(self, state: ServerState) -> None:
        self._members = list(state.members)
        self._closed = list(state.closed)
        self._keys = dict(state.keys)
        for party, body in self._keys.items():
            self.note_keys(party, parse(PartyKey, body))
        self._uploads = {
            party: parse(ContributeAnswer, body)
            for party, body in state.uploads.items()
        }
        self._totals = dict(state.numbers)

    def _forget(self) -> None:
        self._uploads = {}
        self._totals = {}
