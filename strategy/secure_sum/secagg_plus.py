"""`secagg-plus` (Bell et al. 2020), the server's side.

Stages: advertise, share, mask, (confirm, where the server may lie,) unmask. The server
sees public keys, ciphertexts, masked values and, of each node, shares of exactly one
of its two secrets.
"""

from __future__ import annotations

from wallflower.protocol.errors import InputError, MalformedMessageError
from wallflower.protocol.identity.enrolment import Certificate, verify_signature
from wallflower.protocol.secure_sum.backends import (
    ADVERTISE,
    CONFIRM,
    MASK,
    SHARE,
    UNMASK,
)
from wallflower.protocol.secure_sum.context import draw_order, parse
from wallflower.protocol.secure_sum.keys import SALT_BYTES, split
from wallflower.protocol.secure_sum.secagg_plus import (
    PLUS_SEAL_BYTES,
    confirmation,
    ring_neighbours,
    summarize_survivors,
)
from wallflower.protocol.secure_sum.secret_shares import SHARE_BYTES
from wallflower.protocol.secure_sum.session import SUSPECT, PartyId, SecureSum, Step
from wallflower.protocol.secure_sum.threat import (
    COMPLETE_UP_TO,
    Sizes,
    Threat,
    graph_size,
    least_contributors,
)
from wallflower.protocol.wire.secure_sum_pb2 import (
    ConfirmAnswer,
    Envelope,
    MaskAnswer,
    PartyKey,
    ShareAnswer,
    SurvivorSet,
    UnmaskAnswer,
)
from wallflower.protocol.wire.sum_state_pb2 import ServerState
from wallflower.strategy.secure_sum.machine import ServerMachine, SessionParams
from wallflower.strategy.secure_sum.plus_messages import stage_messages
from wallflower.strategy.secure_sum.unmasking import (
    TOO_FEW_SHARES,
    Shares,
    Unmasking,
    UnmaskingError,
)


class SecaggPlusServer(ServerMachine):
    """Collects keys, sealed shares, masked values, then shares in the clear."""

    def __init__(self, opening: SessionParams) -> None:
        super().__init__(opening)
        self.keys: dict[PartyId, PartyKey] = {}
        self.uploads: dict[PartyId, ShareAnswer] = {}
        self.neighbours: dict[PartyId, list[PartyId]] = {}
        self.sharers: dict[PartyId, int] = {}
        self.masked: dict[PartyId, int] = {}
        self.confirmations: dict[PartyId, bytes] = {}
        self._advertised: list[PartyId] = []
        self._unmasks: dict[PartyId, UnmaskAnswer] = {}

    @property
    def sizes(self) -> Sizes:
        """k and t for those who advertised."""
        return graph_size(self.threat_now, len(self._advertised))

    @property
    def threat_now(self) -> Threat:
        """As many colluders as among the invited, in a roster that has shrunk."""
        return self.threat.among(len(self.parties), len(self._advertised))

    @property
    def survivors(self) -> dict[PartyId, int]:
        """Those whose masked value is in, with their users."""
        return {p: users for p, users in self.sharers.items() if p in self.masked}

    def survivor_set(self, parties: dict[PartyId, int]) -> SurvivorSet:
        """Describe a set of parties to the clients."""
        small = len(self._advertised) <= COMPLETE_UP_TO
        return summarize_survivors(
            parties, listed=small or self.threat.malicious_server
        )

    def _first(self) -> Step:
        graph_size(self.threat, len(self.parties))
        return self.enter(ADVERTISE)

    def _messages(self) -> dict[PartyId, bytes]:
        return stage_messages(self)

    def _take(self, party: PartyId, envelope: Envelope) -> None:
        payload = envelope.payload
        if self.stage == ADVERTISE:
            self._take_keys(party, parse(PartyKey, payload))
        elif self.stage == SHARE:
            self._take_shares(party, parse(ShareAnswer, payload))
        elif self.stage == MASK:
            masked = parse(MaskAnswer, payload).masked
            if masked >= self.opening.spec.modulus:
                raise MalformedMessageError("a masked value outside ℤ_m")
            self.masked[party] = masked
        elif self.stage == CONFIRM:
            self._take_confirmation(party, parse(ConfirmAnswer, payload).signature)
        else:
            self._take_unmask(party, parse(UnmaskAnswer, payload))

    def _take_keys(self, party: PartyId, key: PartyKey) -> None:
        capacity = self.check_key(party, key, mask=True)
        self.check_users(party, self.parties[party], capacity)
        self.keys[party] = key

    def _take_shares(self, party: PartyId, upload: ShareAnswer) -> None:
        self.check_users(party, upload.users, self.parties[party])
        if len(upload.salt) != SALT_BYTES:
            raise MalformedMessageError("a salt of the wrong length")
        split(upload.sealed, len(self.neighbours[party]), PLUS_SEAL_BYTES)
        self.uploads[party] = upload

    def _take_confirmation(self, party: PartyId, signature: bytes) -> None:
        certificate = Certificate.from_bytes(self.keys[party].certificate)
        text = confirmation(self.context, self.survivor_set(self.survivors))
        verify_signature(certificate.public_key, signature, text)
        self.confirmations[party] = signature

    def _take_unmask(self, party: PartyId, answer: UnmaskAnswer) -> None:
        present, dropped = self.split_neighbours(party)
        if len(answer.self_shares) != len(present) or len(answer.mask_shares) != len(
            dropped
        ):
            raise MalformedMessageError("shares are missing or too many")
        for share in [*answer.self_shares, *answer.mask_shares]:
            if len(share) not in (0, SHARE_BYTES):
                raise MalformedMessageError("a share of the wrong length")
        self._unmasks[party] = answer

    def split_neighbours(self, party: PartyId) -> tuple[list[int], list[int]]:
        """Positions of a party's neighbours in the sum, and of those that vanished."""
        neighbours = self.neighbours[party]
        present = [i for i, p in enumerate(neighbours) if p in self.masked]
        dropped = [
            i
            for i, p in enumerate(neighbours)
            if p in self.sharers and p not in self.masked
        ]
        return present, dropped

    def _next(self) -> Step:
        if self.stage == ADVERTISE:
            return self._draw_graph()
        if self.stage == SHARE:
            return self._open_masking()
        if self.stage == MASK:
            return self._close_set()
        if self.stage == CONFIRM:
            return self.enter(UNMASK)
        return self._unmask()

    def _short(
        self, remaining: dict[PartyId, int], asked: int, what: str
    ) -> str | None:
        """Say why a set is too small to go on with, or None."""
        threat = self.threat.among(len(self.parties), asked)
        needed, quorum = (
            least_contributors(threat, asked),
            self.opening.spec.quorum,
        )
        if len(remaining) < needed:
            return f"{len(remaining)} nodes {what}; {needed} needed"
        users = sum(remaining.values())
        if users < quorum:
            return f"{users} users {what}; quorum {quorum}"
        return None

    def _draw_graph(self) -> Step:
        remaining = {p: users for p, users in self.parties.items() if p in self.keys}
        problem = self._short(remaining, len(self.parties), "advertised keys")
        if problem is not None:
            return self._void("too-few-parties", problem)
        try:
            self._fix_graph(list(remaining))
        except InputError as error:
            return self._void("threat-infeasible", str(error))
        return self.enter(SHARE)

    def _fix_graph(self, advertised: list[PartyId]) -> None:
        self._advertised = advertised
        self.set_roster({party: self.parties[party] for party in advertised})
        order = draw_order(self.context, advertised)
        degree = self.sizes.helpers
        self.neighbours = {
            party: ring_neighbours(order, position, degree)
            for position, party in enumerate(order)
        }

    def _open_masking(self) -> Step:
        """Go on with those who shared and have t neighbours who did."""
        remaining = {
            p: self.uploads[p].users for p in self.parties if p in self.uploads
        }
        threshold = self.sizes.threshold
        while True:
            lonely = [
                party
                for party in remaining
                if sum(p in remaining for p in self.neighbours[party]) < threshold
            ]
            if not lonely:
                break
            for party in lonely:
                self.lost[party] = "too-few-neighbours"
                del remaining[party]
        problem = self._short(remaining, len(self._advertised), "shared")
        if problem is not None:
            return self._void("too-few-sharers", problem)
        self.sharers = remaining
        return self.enter(MASK)

    def _close_set(self) -> Step:
        problem = self._short(self.survivors, len(self._advertised), "are in the sum")
        if problem is not None:
            return self._void("too-few-contributors", problem)
        for party in self.sharers:
            alive = sum(p in self.masked for p in self.neighbours[party])
            if alive < self.sizes.threshold:
                return self._void(
                    "too-few-neighbours",
                    f"{alive} neighbours of {party} are left; "
                    f"{self.sizes.threshold} needed",
                )
        malicious = self.threat.malicious_server
        return self.enter(CONFIRM if malicious else UNMASK)

    def _unmask(self) -> Step:
        spec, survivors = self.opening.spec, self.survivors
        self_shares: Shares = {}
        mask_shares: Shares = {}
        positions = {
            party: {p: i for i, p in enumerate(listed, 1)}
            for party, listed in self.neighbours.items()
        }
        for party, answer in self._unmasks.items():
            present, dropped = self.split_neighbours(party)
            for kind, asked, given in (
                (self_shares, present, answer.self_shares),
                (mask_shares, dropped, answer.mask_shares),
            ):
                for position, share in zip(asked, given, strict=True):
                    if share:
                        whose = self.neighbours[party][position]
                        kind.setdefault(whose, {})[positions[whose][party]] = share
        unmasking = Unmasking(
            context=self.context,
            modulus=spec.modulus,
            threshold=self.sizes.threshold,
            masked={party: self.masked[party] for party in survivors},
            dropped=[party for party in self.sharers if party not in self.masked],
            neighbours=self.neighbours,
            mask_keys={party: key.mask_key for party, key in self.keys.items()},
        )
        try:
            total, wrong = unmasking.total(self_shares, mask_shares)
        except UnmaskingError as error:
            # Too few shares: who was silent is known. Shares that contradict each
            # other are the owner's doing or its neighbours': that is not.
            if error.code != TOO_FEW_SHARES:
                self.found(error.party, SUSPECT, error.code)
            return self._void(error.code, error.detail)
        for party in sorted(wrong):
            self.lost[party] = "share-does-not-fit"
            self.found(party, SUSPECT, "share-does-not-fit")
        users = sum(survivors.values())
        return self._end(SecureSum(total, spec.modulus, tuple(survivors), users))

    def _write(self, state: ServerState) -> None:
        state.members.extend(self._advertised)
        state.closed.extend(self.sharers)
        for party, key in self.keys.items():
            state.keys[party] = key.SerializeToString()
        for party, upload in self.uploads.items():
            state.uploads[party] = upload.SerializeToString()
        for party, masked in self.masked.items():
            state.numbers[party] = masked
        for party, signature in self.confirmations.items():
            state.confirmations[party] = signature
        for party, answer in self._unmasks.items():
            state.unmasks[party] = answer.SerializeToString()

    def _read(self, state: ServerState) -> None:
        self.keys = {p: parse(PartyKey, body) for p, body in state.keys.items()}
        for party, key in self.keys.items():
            self.note_keys(party, key)
        self.uploads = {p: parse(ShareAnswer, b) for p, b in state.uploads.items()}
        if state.members:
            self._fix_graph(list(state.members))
        self.sharers = {party: self.uploads[party].users for party in state.closed}
        self.masked = dict(state.numbers)
        self.confirmations = dict(state.confirmations)
        self._unmasks = {p: parse(UnmaskAnswer, b) for p, b in state.unmasks.items()}

    def _forget(self) -> None:
        self.uploads = {}
        self.masked = {}
        self._unmasks = {}
