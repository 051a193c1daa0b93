"""`sealed`, a node's side: seal once and be done; as a member, open a sum once.

A contributor encrypts its integer under the run's key, proves that it knows what it
sealed, signs, and may vanish. A member, which need not be in the cohort at all, checks
the closed set and answers once per cohort with s_i·ΣC₁ and a proof. See
docs/secure-sums.md for the protocol and what each party sees.
"""

from __future__ import annotations

from wallflower.clients.secure_sum.machine import (
    ClientMachine,
    Reply,
    SessionParams,
)
from wallflower.clients.secure_sum.sealed_checks import (
    checked_contribution,
    sealing_key,
)
from wallflower.clients.secure_sum.sealed_dealing import DealingPart
from wallflower.protocol.accounting.truncation import Truncation, truncation
from wallflower.protocol.cohort import cohort_mechanism
from wallflower.protocol.errors import (
    InputError,
    MalformedMessageError,
    RefusalError,
    WrongContextError,
)
from wallflower.protocol.identity.enrolment import Trust
from wallflower.protocol.refusals import RefusalCode
from wallflower.protocol.secure_sum.backends import (
    CHECK,
    DEAL,
    ENLIST,
    SEAL,
    SEALED,
    stages_of,
)
from wallflower.protocol.secure_sum.context import parse
from wallflower.protocol.secure_sum.sealed import ranges
from wallflower.protocol.secure_sum.sealed.cipher import (
    encrypt,
    opening_place,
    prove_sender,
    sealed_context,
    statement,
)
from wallflower.protocol.secure_sum.sealed.committee import Seats, is_dealing
from wallflower.protocol.secure_sum.sealed.dealing import Terms, dealing_name
from wallflower.protocol.secure_sum.sealed.group import (
    ORDER,
    Point,
    base,
    prove_equality,
    read_scalar,
    shared_point,
    total,
)
from wallflower.protocol.secure_sum.sealed.sizes import DealingSizes
from wallflower.protocol.secure_sum.session import Contribution
from wallflower.protocol.secure_sum.threat import least_contributors
from wallflower.protocol.visitors import INVITED, LONGEST_STAY_S
from wallflower.protocol.wire.sealed_pb2 import (
    CheckRequest,
    DealRequest,
    EnlistRequest,
    MemberState,
    OpenAnswer,
    OpenRequest,
    SealAnswer,
    SealRequest,
)
from wallflower.protocol.wire.secure_sum_pb2 import Envelope, RosterNote

_DEALING = (ENLIST, DEAL, CHECK)


class SealedClient(ClientMachine):
    """A contributor, and a member of the run's committee if drawn."""

    stages = stages_of(SEALED)

    def __init__(self, setting: SessionParams) -> None:
        super().__init__(setting)
        self._part = DealingPart(setting, self.threat)
        self._bound = b""  # the context with the dealing, once known
        self._truncation: Truncation | None = None  # follows from the description

    def _inspect(self, envelope: Envelope) -> Reply:
        if is_dealing(self.setting.spec) != (envelope.stage in _DEALING):
            raise WrongContextError("a dealing and a cohort are not the same session")
        if envelope.stage in _DEALING:
            return self._inspect_dealing(envelope)
        if envelope.stage == SEAL:
            return self._inspect_seal(parse(SealRequest, envelope.payload), envelope)
        return self._inspect_opening(parse(OpenRequest, envelope.payload), envelope)

    def _inspect_seal(self, request: SealRequest, envelope: Envelope) -> Reply:
        self.check_roster(request.roster, envelope)
        public = sealing_key(
            request.dealing, self.setting, self.threat, self.roster_size
        )
        self._bind(request.dealing.name)
        # Refuses what cannot be proved, before anybody is charged for it.
        self._allowed_range(1)

        def reply(value: Contribution | None) -> bytes:
            assert value is not None
            return self._seal(public, value)

        return reply

    def _inspect_dealing(self, envelope: Envelope) -> Reply:
        if envelope.stage == ENLIST:
            self._draw_seats(parse(EnlistRequest, envelope.payload).roster, envelope)
            return lambda value: self._part.enlist(self.context)
        if envelope.stage == DEAL:
            deal = parse(DealRequest, envelope.payload)
            sizes, seats = self._draw_seats(deal.roster, envelope)
            seated = self._part.seated(deal, self.context, sizes, seats)
            return lambda value: self._part.deal(*seated)
        check = parse(CheckRequest, envelope.payload)
        sizes, seats = self._draw_seats(check.roster, envelope)
        self._part.check_dealers(check, sizes, seats)
        terms, holders = self._part.seated(check, self.context, sizes, seats)
        return lambda value: self._part.check(check, terms, holders)

    def _draw_seats(
        self, note: RosterNote, envelope: Envelope
    ) -> tuple[DealingSizes, Seats | None]:
        self.check_roster(note, envelope)
        return self._part.seats(self.context, self.roster, self.roster_size)

    def _inspect_opening(self, request: OpenRequest, envelope: Envelope) -> Reply:
        self.check_roster(request.roster, envelope, invited=False)
        self._bind(request.dealing)
        dealers = list(request.dealers)
        key = _opening_key(self.setting, request.dealing_id, request.dealing, dealers)
        summed = self._add_opened(request)
        return lambda value: self._open(request, summed, key)

    def _add_opened(self, request: OpenRequest) -> Point:
        """Return Σ C₁ of a set that may be opened; refuses one that is too small.

        Where the server may lie every contribution is verified and the sum made here.
        """
        setting = self.setting
        needed = least_contributors(self.threat, self.roster_size)
        if request.contributors < needed:
            raise RefusalError(
                RefusalCode.SET_TOO_SMALL,
                f"{request.contributors} nodes; at least {needed}",
            )
        quorum = setting.spec.quorum
        if request.users < quorum:
            raise RefusalError(
                RefusalCode.QUORUM_NOT_MET, f"{request.users} users; at least {quorum}"
            )
        if request.contributors > self.roster_size:
            raise WrongContextError("more contributors than the roster has nodes")
        if not self.threat.malicious_server:
            return shared_point(request.sum)
        return self._add_verified(request)

    def _add_verified(self, request: OpenRequest) -> Point:
        """Return Σ C₁ over contributions that are all verified here."""
        setting, roster = self.setting, self.roster
        senders = list(request.senders)
        if setting.spec.admission:
            roster = dict.fromkeys(senders, 1)
        assert roster is not None
        if len(senders) != len(request.sealed):
            raise MalformedMessageError("the set is incomplete")
        if senders != sorted(set(senders)):
            raise WrongContextError("the set is unsorted or names a node twice")
        if len(senders) != request.contributors:
            raise WrongContextError("the set has another size than stated")
        if sum(one.users for one in request.sealed) != request.users:
            raise WrongContextError("the set has another number of users than stated")
        trust = _contributors_trust(setting)
        ones = [
            checked_contribution(one, sender, roster, self._bound, trust)
            for sender, one in zip(senders, request.sealed, strict=True)
        ]
        summed = total(ones)
        if bytes(summed) != request.sum:
            raise WrongContextError("the sum is not that of the set")
        return summed

    def _bind(self, dealing: bytes) -> None:
        bound = sealed_context(self.context, dealing)
        if self._bound and self._bound != bound:
            raise WrongContextError("the dealing changed between stages")
        self._bound = bound

    def _check_value(self, contribution: Contribution | None) -> None:
        """Take any integer: nothing is reduced here. Proved ones have a range."""
        if contribution is None or contribution.users < 1:
            raise InputError("contribution", "none", "the node's value for this stage")
        allowed = self._allowed_range(contribution.users)
        if allowed is not None and contribution.value not in allowed:
            # Less than once in 2^40 cohorts, for all rewards. Whether it happens
            # depends on them, which the δ of proved inputs pays for.
            raise RefusalError(RefusalCode.NOISE_OUT_OF_RANGE, "this node adds nothing")

    def _allowed_range(self, users: int) -> ranges.Range | None:
        """Return the values that so many users may add, where inputs are proved."""
        if not self.setting.spec.proved_inputs:
            return None
        if self._truncation is None:
            self._truncation = truncation(cohort_mechanism(self.setting.spec))
        return ranges.Range(*self._truncation.allowed(users))

    def _seal(self, public: Point, contribution: Contribution) -> bytes:
        setting, users = self.setting, contribution.users
        sealed, opening = encrypt(public, contribution.value)
        one, two = bytes(sealed.one), bytes(sealed.two)
        signed = statement(self._bound, setting.party, users, one, two)
        answer = SealAnswer(
            one=one, two=two, users=users, proof=prove_sender(opening, signed)
        )
        allowed = self._allowed_range(users)
        if allowed is not None:
            answer.range = ranges.prove(public, sealed, opening, allowed, signed)
        identity = setting.identity
        if identity is not None and identity.certificate is not None:
            answer.certificate = identity.certificate.to_bytes()
            answer.signature = identity.sign(signed)
        return answer.SerializeToString()

    def _open(
        self, request: OpenRequest, summed: Point, own_key: tuple[int, bytes]
    ) -> bytes:
        key, public = own_key
        place = opening_place(
            self._bound,
            request.sum,
            request.contributors,
            request.users,
            self.setting.party,
        )
        share, proof = prove_equality(key, public, summed, place)
        return OpenAnswer(share=bytes(share), proof=proof).SerializeToString()

    def _forget(self) -> None:
        self._part.forget()

    def _own_state(self) -> bytes:
        if is_dealing(self.setting.spec):
            return self._part.state()
        return self._bound

    def _resume_own(self, body: bytes) -> None:
        if is_dealing(self.setting.spec):
            self._part.resume(body)
        else:
            self._bound = body


def _contributors_trust(setting: SessionParams) -> Trust:
    """Return who vouches for the contributors: enrolment, or the inviter.

    People who arrived may have come weeks ago; one whose certificate has ended since
    must not cost everybody the sum.
    """
    if setting.spec.admission != INVITED:
        trust = setting.trust
        assert trust is not None  # the limits refuse a lying server without
        return trust.after(LONGEST_STAY_S) if setting.spec.admission else trust
    if setting.inviter is None:
        raise RefusalError(
            RefusalCode.ENROLMENT_REQUIRED, "no invitation key is configured"
        )
    return setting.inviter.after(LONGEST_STAY_S)


def _opening_key(
    setting: SessionParams, dealing_id: str, name: bytes, dealers: list[str]
) -> tuple[int, bytes]:
    """Return this member's key of the dealing that a sum was sealed under, and s_i·G.

    Every sum of a run asks the same of the same shares: what was found good is kept as
    long as the store holds them.
    """
    keyring = setting.keyring
    body = keyring.key_shares.get(dealing_id)
    if body is None:
        keyring.opening_keys.pop(dealing_id, None)
        raise RefusalError(
            RefusalCode.NOT_A_MEMBER, "this node holds no share of that key"
        )
    threat = setting.spec.threat.SerializeToString(deterministic=True)
    asked = body, name, dealers, threat
    known = keyring.opening_keys.get(dealing_id)
    if known is not None and known[0] == asked:
        return known[1]
    key = _add_up_key(parse(MemberState, body), name, dealers, threat)
    keyring.opening_keys[dealing_id] = asked, key
    return key


def _add_up_key(
    held: MemberState, name: bytes, dealers: list[str], threat: bytes
) -> tuple[int, bytes]:
    """Add up the accepted dealers' shares.

    The dealing's name, which the contributions are bound to, follows from what this
    member itself was dealt.
    """
    if held.threat != threat:
        raise WrongContextError("the dealing was made for another threat")
    if dealers != sorted(set(dealers)):
        raise MalformedMessageError("the dealers are unsorted or repeat themselves")
    if len(dealers) < held.accepted:
        raise RefusalError(
            RefusalCode.TOO_FEW_DEALERS,
            f"{len(dealers)} dealers; at least {held.accepted}",
        )
    if not set(dealers) <= held.shares.keys():
        raise RefusalError(
            RefusalCode.NO_SHARE, "a dealer whose share this member does not hold"
        )
    terms = Terms(held.context, held.committee, held.threshold)
    digests = {dealer: held.shares[dealer].statement for dealer in dealers}
    if dealing_name(terms, digests) != name:
        raise WrongContextError("the dealing has another name than its dealers give")
    key = sum(read_scalar(held.shares[dealer].share) for dealer in dealers) % ORDER
    if key == 0:
        raise RefusalError(RefusalCode.NO_SHARE, "the shares cancel each other")
    known = held.key if len(dealers) == len(held.shares) else b""
    return key, known or bytes(base(key))
