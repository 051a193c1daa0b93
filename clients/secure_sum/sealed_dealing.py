"""`sealed`, a node's part in a dealing: enlist, deal, check.

A drawn member announces a key of this dealing, deals a secret of its own if asked to,
and checks every share dealt to it. Good shares go to the node's vault, by dealer, for
the sums of the run; a bad one is answered with a complaint that everybody can check.
The polynomial is forgotten as soon as it is dealt, the member's key with the check.
"""

from __future__ import annotations

from wallflower.clients.secure_sum.machine import Setting
from wallflower.protocol.errors import (
    MalformedMessageError,
    RefusalError,
    WrongContextError,
)
from wallflower.protocol.secure_sum.envelope import parse
from wallflower.protocol.secure_sum.sealed import feldman
from wallflower.protocol.secure_sum.sealed.committee import (
    Seats,
    committee_digest,
    read_committee,
    read_statement,
    sign_key,
    sign_statement,
    verify_key,
)
from wallflower.protocol.secure_sum.sealed.dealing import (
    Dealing,
    Holder,
    Statement,
    Terms,
    complain,
    deal,
    open_share,
)
from wallflower.protocol.secure_sum.sealed.group import (
    KeyPair,
    Point,
    read_scalar,
    scalar_bytes,
)
from wallflower.protocol.secure_sum.sealed.sizes import DealingSizes, dealing_sizes
from wallflower.protocol.secure_sum.threat import Threat
from wallflower.protocol.wire.sealed_pb2 import (
    CheckAnswer,
    CheckRequest,
    DealAnswer,
    DealRequest,
    DealtCommittee,
    DealtShare,
    EnlistState,
    HeldShare,
    MemberState,
    ShareComplaint,
)


class DealingPart:
    """What a node does in one dealing; the machine around it keeps order."""

    def __init__(self, setting: Setting, threat: Threat) -> None:
        self._setting = setting
        self._threat = threat
        self._pair: KeyPair | None = None

    def state(self) -> bytes:
        """Write down what is held between the stages."""
        if self._pair is None:
            return b""
        return EnlistState(secret=scalar_bytes(self._pair.secret)).SerializeToString()

    def resume(self, body: bytes) -> None:
        """Take up what `state` wrote."""
        if body:
            self._pair = KeyPair(read_scalar(parse(EnlistState, body).secret))

    def forget(self) -> None:
        """Drop the key of this dealing; shares in the vault stay for the run."""
        self._pair = None

    def seats(
        self, context: bytes, roster: dict[str, int] | None, size: int
    ) -> tuple[DealingSizes, Seats | None]:
        """Derive the sizes, and the draw where the roster is known."""
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

    def check_committee(
        self, body: bytes, context: bytes, sizes: DealingSizes, seats: Seats | None
    ) -> list[Holder]:
        """Refuse a committee that was not drawn, or whose members did not sign."""
        holders = read_committee(body)
        if not sizes.threshold <= len(holders) <= sizes.members:
            raise RefusalError(
                "committee-size",
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
        return holders

    def deal(self, request: DealRequest, terms: Terms, holders: list[Holder]) -> bytes:
        """Share a secret of one's own, and forget it."""
        setting = self._setting
        dealing = deal(terms, setting.party, holders)
        return DealAnswer(
            statement=sign_statement(dealing.statement, terms, setting.identity),
            commitments=dealing.commitments,
            ephemeral=dealing.ephemeral,
            sealed=b"".join(dealing.sealed),
        ).SerializeToString()

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
                "too-few-dealers", f"{len(dealers)} dealers; at least {sizes.accepted}"
            )

    def check(
        self,
        request: CheckRequest,
        terms: Terms,
        sizes: DealingSizes,
        holders: list[Holder],
    ) -> bytes:
        """Check every share; keep the good ones, complain about the others."""
        setting, own = self._setting, self._own(holders)
        held = MemberState(
            dealing_id=setting.spec.cohort_id,
            context=terms.context,
            committee=terms.committee,
            threshold=terms.threshold,
            accepted=sizes.accepted,
            place=own.place,
            threat=setting.spec.threat.SerializeToString(deterministic=True),
        )
        complaints = []
        for one in request.shares:
            statement = read_statement(one.statement, terms, setting.trust)
            share = self._share(one, statement, terms, own)
            if share is None:
                complaints.append(self._complaint(one, terms, own))
            else:
                held.shares[statement.dealer].CopyFrom(
                    HeldShare(
                        statement=statement.digest(terms), share=scalar_bytes(share)
                    )
                )
        setting.keyring.vault.write(
            held.dealing_id, held.SerializeToString(deterministic=True)
        )
        self._pair = None
        return CheckAnswer(complaints=complaints).SerializeToString()

    def _share(
        self, one: DealtShare, statement: Statement, terms: Terms, own: Holder
    ) -> int | None:
        """Open and check one share; None for a wrong one.

        A dealing that does not hang together is not the dealer's word against the
        member's: whoever passed it on should have refused it.
        """
        assert self._pair is not None
        dealing = Dealing(statement, one.commitments, one.ephemeral, (one.sealed,))
        commitments = dealing.check(terms, knowledge=self._threat.malicious_server)
        agreed = self._pair.agree(Point.parse(one.ephemeral))
        share = open_share(terms, statement.dealer, own, agreed, one.sealed)
        if share is None or not feldman.fits(share, commitments, own.place):
            return None
        return share

    def _complaint(self, one: DealtShare, terms: Terms, own: Holder) -> ShareComplaint:
        assert self._pair is not None
        dealer = one.statement.dealer
        shared, proof = complain(
            terms, dealer, own, self._pair, Point.parse(one.ephemeral)
        )
        return ShareComplaint(dealer=dealer, shared=shared, proof=proof)

    def _own(self, holders: list[Holder]) -> Holder:
        for one in holders:
            if one.party == self._setting.party:
                return one
        raise WrongContextError("this node is not on the committee")


def terms_of(context: bytes, committee: bytes, sizes: DealingSizes) -> Terms:
    """Give what all dealers of a dealing agree on."""
    return Terms(context, committee_digest(committee), sizes.threshold)
