"""`sealed`, a node's side: seal once and be done; as a member, open a sum once.

A contributor encrypts its integer under the run's key, proves that it knows what it
sealed, signs, and may vanish. A member, which need not be in the cohort at all, checks
the closed set and answers once per cohort with s_i·ΣC₁ and a proof. See
docs/secure-sums.md for the protocol and what each party sees.
"""

from __future__ import annotations

from wallflower.clients.secure_sum.machine import ClientMachine, Setting
from wallflower.clients.secure_sum.sealed_checks import (
    opened_sum,
    opening_key,
    sealing_key,
)
from wallflower.clients.secure_sum.sealed_dealing import DealingPart, terms_of
from wallflower.protocol.accounting.truncation import truncation
from wallflower.protocol.cohort import cohort_mechanism
from wallflower.protocol.errors import InputError, RefusalError, WrongContextError
from wallflower.protocol.secure_sum.backends import SEALED
from wallflower.protocol.secure_sum.envelope import parse
from wallflower.protocol.secure_sum.sealed import ranges
from wallflower.protocol.secure_sum.sealed.cipher import (
    encrypt,
    opening_place,
    prove_sender,
    sealed_context,
    statement,
)
from wallflower.protocol.secure_sum.sealed.committee import Seats, is_dealing
from wallflower.protocol.secure_sum.sealed.dealing import Holder
from wallflower.protocol.secure_sum.sealed.group import KeyPair, Point
from wallflower.protocol.secure_sum.sealed.proofs import prove_equality
from wallflower.protocol.secure_sum.sealed.sizes import DealingSizes
from wallflower.protocol.secure_sum.session import Contribution
from wallflower.protocol.secure_sum.stages import (
    CHECK,
    DEAL,
    ENLIST,
    OPEN,
    SEAL,
    stages_of,
)
from wallflower.protocol.wire.sealed_pb2 import (
    CheckRequest,
    DealRequest,
    EnlistRequest,
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

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self._part = DealingPart(setting, self.threat)
        self._bound = b""  # the context with the dealing, once known
        self._public: Point | None = None
        self._allowed: ranges.Range | None = None
        self._seats: tuple[DealingSizes, list[Holder]] | None = None
        self._opening: tuple[Point, KeyPair] | None = None

    def _inspect(self, envelope: Envelope) -> None:
        if is_dealing(self.setting.spec) != (envelope.stage in _DEALING):
            raise WrongContextError("a dealing and a cohort are not the same session")
        if envelope.stage in _DEALING:
            self._inspect_dealing(envelope)
        elif envelope.stage == SEAL:
            request = parse(SealRequest, envelope.payload)
            self.check_roster(request.roster, envelope)
            self._public = sealing_key(request.dealing, self.setting, self.threat)
            self._bind(request.dealing.name)
        else:
            self._inspect_opening(parse(OpenRequest, envelope.payload), envelope)

    def _inspect_dealing(self, envelope: Envelope) -> None:
        request: EnlistRequest | DealRequest | CheckRequest
        if envelope.stage == ENLIST:
            request = parse(EnlistRequest, envelope.payload)
            self._drawn(request.roster, envelope)
            return
        if envelope.stage == DEAL:
            request = parse(DealRequest, envelope.payload)
        else:
            request = parse(CheckRequest, envelope.payload)
        sizes, seats = self._drawn(request.roster, envelope)
        holders = self._part.check_committee(
            request.committee, self.context, sizes, seats
        )
        if isinstance(request, CheckRequest):
            self._part.check_dealers(request, sizes, seats)
        self._seats = sizes, holders

    def _drawn(
        self, note: RosterNote, envelope: Envelope
    ) -> tuple[DealingSizes, Seats | None]:
        self.check_roster(note, envelope)
        return self._part.seats(self.context, self.roster, self.roster_size)

    def _inspect_opening(self, request: OpenRequest, envelope: Envelope) -> None:
        self.check_roster(request.roster, envelope, invited=False)
        self._bind(request.dealing)
        key = opening_key(request, self.setting)
        summed = opened_sum(
            request=request,
            setting=self.setting,
            threat=self.threat,
            roster=self.roster,
            roster_size=self.roster_size,
            context=self._bound,
        )
        self._opening = summed, key

    def _bind(self, dealing: bytes) -> None:
        bound = sealed_context(self.context, dealing)
        if self._bound and self._bound != bound:
            raise WrongContextError("the dealing changed between stages")
        self._bound = bound

    def _answer(self, envelope: Envelope, contribution: Contribution | None) -> bytes:
        if envelope.stage == ENLIST:
            return self._part.enlist(self.context)
        if envelope.stage == SEAL:
            assert contribution is not None
            return self._seal(contribution)
        if envelope.stage == OPEN:
            return self._open(parse(OpenRequest, envelope.payload))
        assert self._seats is not None
        sizes, holders = self._seats
        self._seats = None
        if envelope.stage == DEAL:
            dealt = parse(DealRequest, envelope.payload)
            terms = terms_of(self.context, dealt.committee, sizes)
            return self._part.deal(dealt, terms, holders)
        checked = parse(CheckRequest, envelope.payload)
        terms = terms_of(self.context, checked.committee, sizes)
        return self._part.check(checked, terms, sizes, holders)

    def _check_value(self, contribution: Contribution | None) -> None:
        """Take any integer: nothing is reduced here. Proved ones have a range."""
        if contribution is None or contribution.users < 1:
            raise InputError("contribution", "none", "the node's value for this stage")
        if self.setting.spec.proved_inputs:
            self._allowed = ranges.Range(
                *truncation(cohort_mechanism(self.setting.spec)).allowed(
                    contribution.users
                )
            )
            if contribution.value not in self._allowed:
                # About once in 2^40 cohorts, whatever the rewards are.
                raise RefusalError("noise-out-of-range", "this node stays silent")

    def _seal(self, contribution: Contribution) -> bytes:
        setting, users, public = self.setting, contribution.users, self._public
        assert public is not None
        if self.roster is not None and users > self.roster[setting.party]:
            raise RefusalError("too-many-users", "more users than were invited")
        sealed, opening = encrypt(public, contribution.value)
        one, two = bytes(sealed.one), bytes(sealed.two)
        said = statement(self._bound, setting.party, users, one, two)
        answer = SealAnswer(
            one=one, two=two, users=users, proof=prove_sender(opening, said)
        )
        if self._allowed is not None:
            answer.range = ranges.prove(public, sealed, opening, self._allowed, said)
        identity = setting.identity
        if identity is not None and identity.certificate is not None:
            answer.certificate = identity.certificate.to_bytes()
            answer.signature = identity.sign(said)
        return answer.SerializeToString()

    def _open(self, request: OpenRequest) -> bytes:
        assert self._opening is not None
        summed, key = self._opening
        self._opening = None
        place = opening_place(
            self._bound,
            request.sum,
            request.contributors,
            request.users,
            self.setting.party,
        )
        share, proof = prove_equality(key, summed, place)
        return OpenAnswer(share=bytes(share), proof=proof).SerializeToString()

    def _forget(self) -> None:
        self._part.forget()
        self._opening = None

    def _own_state(self) -> bytes:
        if is_dealing(self.setting.spec):
            return self._part.state()
        return self._bound

    def _resume_own(self, body: bytes) -> None:
        if is_dealing(self.setting.spec):
            self._part.resume(body)
        else:
            self._bound = body
