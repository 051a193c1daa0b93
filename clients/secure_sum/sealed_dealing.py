"""`sealed`, a node's part in a dealing: enlist, deal, check.

A drawn member announces a key of this dealing, deals a secret of its own if asked to,
and checks every share dealt to it. Good shares go to the node's store, by dealer, for
the sums of the run; a bad one is answered with a complaint that everybody can check.
The polynomial is forgotten as soon as it is dealt but for the dealer's own share, the
member's key with the check.
"""

from __future__ import annotations

from dataclasses import dataclass

from wallflower.clients.secure_sum.machine import SessionParams
from wallflower.protocol.errors import (
    MalformedMessageError,
    RefusalError,
    WrongContextError,
)
from wallflower.protocol.refusals import RefusalCode
from wallflower.protocol.secure_sum.context import parse
from wallflower.protocol.secure_sum.sealed import feldman, tree
from wallflower.protocol.secure_sum.sealed.committee import (
    Seats,
    committee_digest,
    read_committee,
    sign_dealing,
    sign_key,
    verify_key,
    verify_statement,
)
from wallflower.protocol.secure_sum.sealed.dealing import (
    Holder,
    Statement,
    Terms,
    complain,
    deal,
    open_share,
    rest_of,
    sealed_for,
)
from wallflower.protocol.secure_sum.sealed.group import (
    ORDER,
    POINT_BYTES,
    KeyPair,
    Point,
    base,
    read_scalar,
    scalar_bytes,
)
from wallflower.protocol.secure_sum.sealed.sizes import DealingSizes, dealing_sizes
from wallflower.protocol.secure_sum.threat import Threat
from wallflower.protocol.wire.sealed_pb2 import (
    CheckAnswer,
    CheckRequest,
    DealRequest,
    DealtCommittee,
    DealtShare,
    EnlistState,
    HeldShare,
    MemberState,
    ShareComplaint,
)


@dataclass(frozen=True, slots=True, repr=False)
class _Received:
    """One dealer's share, opened; None where there is none inside."""

    message: DealtShare
    statement: Statement
    share: int | None
    own: bool = False

    def fits(self, threshold: int, place: int) -> bool:
        """Return whether it is the dealer's polynomial at `place`."""
        if self.own:
            return True
        share, points = self.share, self.message.commitments
        commitments = feldman.read_commitments(points, threshold)
        return share is not None and feldman.fits(share, commitments, place)


class DealingPart:
    """What a node does in one dealing; the machine around it keeps order."""

    def __init__(self, setting: SessionParams, threat: Threat) -> None:
        self._setting = setting
        self._threat = threat
        self._pair: KeyPair | None = None
        self._dealt: HeldShare | None = None  # of this node's own dealing
        self._drawn: tuple[DealingSizes, Seats | None] | None = None
        self._seated: tuple[bytes, list[Holder]] | None = None

    def state(self) -> bytes:
        """Write down what is held between the stages."""
        if self._pair is None:
            return b""
        secret = scalar_bytes(self._pair.secret)
        return EnlistState(secret=secret, own=self._dealt).SerializeToString()

    def resume(self, body: bytes) -> None:
        """Take up what `state` wrote."""
        if body:
            state = parse(EnlistState, body)
            self._pair = KeyPair(read_scalar(state.secret))
            self._dealt = state.own if state.HasField("own") else None

    def forget(self) -> None:
        """Drop the key of this dealing; shares in the store stay for the run."""
        self._pair = None
        self._dealt = None

    def seats(
        self, context: bytes, roster: dict[str, int] | None, size: int
    ) -> tuple[DealingSizes, Seats | None]:
        """Derive the sizes, and the draw where the roster is known; once a session."""
        if self._drawn is None:
            self._drawn = self._draw(context, roster, size)
        return self._drawn

    def _draw(
        self, context: bytes, roster: dict[str, int] | None, size: int
    ) -> tuple[DealingSizes, Seats | None]:
        if roster is None:
            return dealing_sizes(self._threat, size), None
        drawn = Seats.drawn(context, self._threat, roster)
        if self._setting.party not in drawn.places:
            raise WrongContextError("this node is not on the committee")
        return drawn.sizes, drawn

    def enlist(self, context: bytes) -> bytes:
        """Announce a key of this dealing."""
        setting, self._pair = self._setting, KeyPair.generate()
        return sign_key(
            self._pair.point, context, setting.party, setting.identity
        ).SerializeToString()

    def seated(
        self,
        request: DealRequest | CheckRequest,
        context: bytes,
        sizes: DealingSizes,
        seats: Seats | None,
    ) -> tuple[Terms, list[Holder]]:
        """Return the terms, and who sits where; a member that believes the server is
        told its own place alone when it checks its shares.
        """
        lying = self._threat.malicious_server
        if lying or isinstance(request, DealRequest):
            holders = self._check_committee(request.committee, context, sizes, seats)
            digest = committee_digest(request.committee)
            return Terms(context, digest, sizes.threshold), holders
        place, party = request.place, self._setting.party
        if not 1 <= place <= sizes.members:
            raise MalformedMessageError("a place beyond the committee's size")
        if seats is not None and seats.places[party] != place:
            raise WrongContextError("this node was drawn for another place")
        if self._pair is None:
            raise WrongContextError("this node has no key of this dealing")
        seen = self._seated
        if seen is not None and committee_digest(seen[0]) != request.committee_digest:
            raise WrongContextError("the committee changed between stages")
        own = Holder(party, place, bytes(self._pair.point))
        return Terms(context, request.committee_digest, sizes.threshold), [own]

    def _check_committee(
        self, body: bytes, context: bytes, sizes: DealingSizes, seats: Seats | None
    ) -> list[Holder]:
        """Refuse a committee that was not drawn, or whose members did not sign."""
        if self._seated is not None and self._seated[0] == body:
            return self._seated[1]
        holders = read_committee(body)
        if not sizes.threshold <= len(holders) <= sizes.members:
            raise RefusalError(
                RefusalCode.COMMITTEE_SIZE,
                f"{len(holders)} members; the threat asks for {sizes.threshold} to "
                f"{sizes.members}",
            )
        if holders[-1].place > sizes.members:
            raise MalformedMessageError("the committee has places beyond its size")
        if seats is not None:
            seats.check(holders)
        own = self._own(holders)
        if self._pair is None or own.key != bytes(self._pair.point):
            raise WrongContextError("the committee lists another key of this node")
        trust = self._setting.trust
        if trust is not None:
            keys = parse(DealtCommittee, body).keys
            for one, key in zip(holders, keys, strict=True):
                verify_key(key, context, one.party, trust)
        self._seated = body, holders
        return holders

    def deal(self, terms: Terms, holders: list[Holder]) -> bytes:
        """Share a secret of one's own, and forget it but for one's own share."""
        setting = self._setting
        dealing, own = deal(terms, setting.party, holders)
        self._dealt = HeldShare(
            statement=dealing.statement.digest(terms), share=scalar_bytes(own)
        )
        return sign_dealing(dealing, terms, setting.identity).SerializeToString()

    def check_dealers(
        self, request: CheckRequest, sizes: DealingSizes, seats: Seats | None
    ) -> None:
        """Refuse dealers that repeat themselves, were not drawn, or are too few."""
        dealers = [one.statement.dealer for one in request.shares]
        if len(set(dealers)) != len(dealers):
            raise MalformedMessageError("a dealer is listed twice")
        if seats is not None and not set(dealers) <= seats.places.keys():
            raise WrongContextError("a dealer was not drawn")
        if len(dealers) < sizes.accepted:
            raise RefusalError(
                RefusalCode.TOO_FEW_DEALERS,
                f"{len(dealers)} dealers; at least {sizes.accepted}",
            )

    def check(
        self,
        request: CheckRequest,
        terms: Terms,
        holders: list[Holder],
    ) -> bytes:
        """Check every share; keep the good ones, complain about the others."""
        assert self._drawn is not None
        (sizes, _), setting = self._drawn, self._setting
        own = self._own(holders)
        held = MemberState(
            dealing_id=setting.spec.cohort_id,
            context=terms.context,
            committee=terms.committee,
            threshold=terms.threshold,
            accepted=sizes.accepted,
            place=own.place,
            threat=setting.spec.threat.SerializeToString(deterministic=True),
        )
        received = [
            self._open_share(one, terms, own, holders) for one in request.shares
        ]
        together = self._fit_together(received, sizes, request.key)
        held.key = request.key if together else b""
        complaints = []
        for one in received:
            if not together and not one.fits(terms.threshold, own.place):
                complaints.append(self._complaint(one.message, terms, own))
                continue
            assert one.share is not None
            share = held.shares[one.statement.dealer]
            share.statement = one.statement.digest(terms)
            share.share = scalar_bytes(one.share)
        kept = held.SerializeToString(deterministic=True)
        setting.keyring.key_shares[held.dealing_id] = kept
        self.forget()
        return CheckAnswer(complaints=complaints).SerializeToString()

    def _fit_together(
        self, received: list[_Received], sizes: DealingSizes, key: bytes
    ) -> bool:
        """Check the sum of all shares, where no key is made from fewer of them.

        Wrong shares that cancel do no harm then: the member's key is the sum. Where
        fewer dealers may be accepted each share must be right by itself, and where the
        server may lie its word for `key`, which follows from the commitments, is none.
        """
        if len(received) > sizes.accepted or self._threat.malicious_server:
            return False
        shares = [one.share for one in received if one.share is not None]
        summed = sum(shares) % ORDER
        if len(shares) < len(received) or summed == 0:
            return False
        return bytes(base(summed)) == key

    def _open_share(
        self, one: DealtShare, terms: Terms, own: Holder, holders: list[Holder]
    ) -> _Received:
        """Open one share.

        A dealing that does not hang together is not the dealer's word against the
        member's: whoever passed it on should have refused it. Nor is a seal that the
        dealer did not sign for: a complaint about it would open the true one.
        """
        public, seals = one.statement, one.seals
        dealer, constant = public.dealer, one.commitments[:POINT_BYTES]
        feldman.check_length(one.commitments, terms.threshold)
        statement = Statement(dealer, constant, public.proof, public.rest)
        verify_statement(statement, public, terms, self._setting.trust)
        if dealer == own.party:
            own_share = self._own_share(statement, terms)
            return _Received(one, statement, own_share, own=True)
        if self._threat.malicious_server:
            receivers = sealed_for(holders, dealer)
            place = receivers.index(own.party)
            seals = tree.climb(one.sealed, place, len(receivers), one.path)
            statement.proven_constant(terms)
        if rest_of(one.commitments, seals) != statement.rest:
            raise MalformedMessageError("a dealer's statement is about other points")
        assert self._pair is not None
        agreed = self._pair.agree(Point.parse(constant))
        share = open_share(terms, dealer, own, agreed, one.sealed)
        return _Received(one, statement, share)

    def _own_share(self, statement: Statement, terms: Terms) -> int:
        dealt = self._dealt
        if dealt is None or dealt.statement != statement.digest(terms):
            raise WrongContextError("this node did not deal what it is said to")
        return read_scalar(dealt.share)

    def _complaint(self, one: DealtShare, terms: Terms, own: Holder) -> ShareComplaint:
        assert self._pair is not None
        dealer = one.statement.dealer
        shared, proof = complain(
            terms, dealer, own, self._pair, Point.parse(one.commitments[:POINT_BYTES])
        )
        return ShareComplaint(dealer=dealer, shared=shared, proof=proof)

    def _own(self, holders: list[Holder]) -> Holder:
        for one in holders:
            if one.party == self._setting.party:
                return one
        raise WrongContextError("this node is not on the committee")
