"""`sealed`: what is verified of a dealing, and of others where the server may lie."""

from __future__ import annotations

from wallflower.clients.secure_sum.keyring import VerifiedDealing
from wallflower.clients.secure_sum.machine import SessionParams, listed_roster
from wallflower.protocol.errors import (
    AuthenticationError,
    MalformedMessageError,
    RefusalError,
    WrongContextError,
)
from wallflower.protocol.identity.enrolment import Trust, verify_signature
from wallflower.protocol.refusals import RefusalCode
from wallflower.protocol.secure_sum.context import context_of, parse
from wallflower.protocol.secure_sum.sealed.cipher import shows_sender, statement
from wallflower.protocol.secure_sum.sealed.committee import (
    Seats,
    committee_digest,
    is_dealing,
    read_committee,
    read_statement,
)
from wallflower.protocol.secure_sum.sealed.dealing import Terms, dealing_name
from wallflower.protocol.secure_sum.sealed.group import (
    Point,
    shared_point,
    total,
)
from wallflower.protocol.secure_sum.threat import Threat
from wallflower.protocol.wire.cohort_pb2 import CohortSpec
from wallflower.protocol.wire.sealed_pb2 import (
    DealingEvidence,
    DealingNote,
    SealAnswer,
)


def sealing_key(
    note: DealingNote, setting: SessionParams, threat: Threat, nodes: int
) -> Point:
    """Return the key to seal under; where the server may lie, from the dealers' word.

    Believed only if enough enrolled, correctly drawn dealers signed for it, each of
    which knows its own part: then one of them is honest, has dealt to a committee it
    checked, and nobody but t members of that can open anything. Enough are those that
    outnumber the colluders of this cohort of `nodes` nodes: the server chooses among
    whom it has a key dealt, and would choose the colluders.
    """
    if len(note.name) != 32:
        raise MalformedMessageError("a dealing without a name")
    key = shared_point(note.key)
    if not threat.malicious_server:
        return key
    trust = setting.trust
    assert trust is not None  # the limits refuse a lying server without enrolment
    known = setting.keyring.verified_dealings
    if note.name not in known:
        name, dealt = _proven(
            parse(DealingEvidence, note.evidence), setting.spec, trust
        )
        if name != note.name:
            raise WrongContextError("the evidence is about another dealing")
        known[name] = dealt
    dealt = known[note.name]
    if dealt.key != note.key:
        raise AuthenticationError("the key is not the one that the dealers made")
    if dealt.threat != threat:
        raise WrongContextError("the dealing was made for another threat")
    if setting.spec.admission:
        setting.limits.check_trustees(setting.spec, threat, dealt.nodes)
    else:
        setting.limits.check_dealing(threat, len(dealt.nodes), nodes)
    return key


def _proven(
    evidence: DealingEvidence, spec: CohortSpec, trust: Trust
) -> tuple[bytes, VerifiedDealing]:
    """Derive a dealing's name and key from its evidence."""
    dealing, note = evidence.spec, evidence.roster
    if not is_dealing(dealing) or dealing.run_id != spec.run_id:
        raise WrongContextError("the evidence is not of a dealing of this run")
    threat = Threat.from_wire(dealing.threat)
    roster = listed_roster(note, required=True)
    assert roster is not None
    context = context_of(dealing, note.digest, note.size)
    seats = Seats.drawn(context, threat, roster)
    seats.check(read_committee(evidence.committee))
    terms = Terms(context, committee_digest(evidence.committee), seats.sizes.threshold)
    digests: dict[str, bytes] = {}
    constants = []
    for message in evidence.accepted:
        if message.dealer in digests or message.dealer not in seats.places:
            raise WrongContextError("a dealer was not drawn, or is listed twice")
        signed = read_statement(message, terms, trust)
        constants.append(signed.proven_constant(terms))
        digests[signed.dealer] = signed.digest(terms)
    if len(digests) < seats.sizes.accepted:
        raise RefusalError(
            RefusalCode.TOO_FEW_DEALERS,
            f"{len(digests)} dealers; at least {seats.sizes.accepted} rule out that "
            "all of them collude",
        )
    key = bytes(total(constants))
    return dealing_name(terms, digests), VerifiedDealing(key, roster.keys(), threat)


def checked_contribution(
    sealed: SealAnswer,
    sender: str,
    roster: dict[str, int],
    context: bytes,
    trust: Trust,
) -> Point:
    """Return C₁ of a contribution that its enrolled sender made for this cohort."""
    certificate = trust.verify(sender, sealed.certificate)
    most = min(roster.get(sender, 0), certificate.capacity)
    if not 1 <= sealed.users <= most:
        raise WrongContextError(f"{sender} claims {sealed.users} users; allowed {most}")
    signed = statement(context, sender, sealed.users, sealed.one, sealed.two)
    try:
        verify_signature(certificate.public_key, sealed.signature, signed)
    except AuthenticationError:
        raise AuthenticationError(f"{sender} did not sign its contribution") from None
    one = Point.parse(sealed.one)
    Point.parse(sealed.two)
    if not shows_sender(one, sealed.proof, signed):
        raise AuthenticationError(f"{sender} does not know what it sealed")
    return one
