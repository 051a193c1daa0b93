"""Draws seats for golden vectors: honest ones, and those of servers that lie."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import cache
from typing import Any

from tests.support.seated_sums import ARMS, RUN, SeatedRun
from tests.support.secure_sums import NOW, names
from wallflower.protocol.cohort import to_rational
from wallflower.protocol.identity.enrolment import Certificate
from wallflower.protocol.privacy.honest_floor import cohort_floor
from wallflower.protocol.privacy.mechanism import mechanism_named
from wallflower.protocol.secure_sum.context import unwrap, wrap
from wallflower.protocol.secure_sum.sealed.group import ORDER, KeyPair
from wallflower.protocol.visitors import INVITED, OPEN, Invitation
from wallflower.protocol.wire.cohort_pb2 import CohortSpec
from wallflower.protocol.wire.node_pb2 import NodeRequest
from wallflower.protocol.wire.sealed_pb2 import (
    DealingEvidence,
    DealingNote,
    DealtCommittee,
    OpenRequest,
    SealRequest,
)
from wallflower.strategy.secure_sum.contributions import SeatTerms, seat_terms

Dice = random.Random
Values = dict[str, Any]
Changes = dict[str, Callable[[], object]]  # what a lie is, and how it is told
_TENTH = Fraction(1, 10)


@cache
def seated(admission: str, lying: bool) -> SeatedRun:
    """Return a run with a key; it serves all seats of its kind."""
    return SeatedRun(admission, lying=lying)


def cohort(dice: Dice, run: SeatedRun) -> CohortSpec:
    """Describe a cohort that any person would agree to."""
    name = dice.choice(("dist-dp", "dist-rdp", "dist-cdp", "local-dp"))
    epsilon, scale = dice.choice((Fraction(1), Fraction(1, 2))), Fraction(10)
    floor = cohort_floor([1] * dice.randrange(20, 400), _TENTH, _TENTH)
    wrap_probability = Fraction(1, 10**6)
    mechanism = mechanism_named(name, epsilon, scale).for_cohort(
        floor.cohort_size, floor.honest_floor, wrap_probability
    )
    arm = dice.randrange(3)
    return CohortSpec(
        run_id=RUN,
        batch=1,
        arm=arm,
        arm_name=ARMS[arm],
        cohort_id=f"cohort-{dice.randrange(10**6)}",
        mechanism=name,
        epsilon=to_rational(epsilon),
        scale=to_rational(scale),
        wrap_probability=to_rational(wrap_probability),
        cohort_size=floor.cohort_size,
        honest_floor=floor.honest_floor,
        quorum=floor.quorum,
        backend="sealed",
        modulus=mechanism.modulus,
        threat=run.threat.to_wire(),
        admission=run.admission,
        proved_inputs=dice.random() < 0.3,
    )


def request_of(spec: CohortSpec, note: DealingNote, visitor: str) -> NodeRequest:
    """Write the terms for a visitor, whatever the description says."""
    size, spec.cohort_size = spec.cohort_size, min(spec.cohort_size, 2**32 - 1)
    request = NodeRequest.FromString(seat_terms(spec, note))
    request.tasks[0].stage.spec.cohort_size = size
    stage = request.tasks[0].stage
    envelope = unwrap(stage.message)
    stage.users.append(visitor)
    stage.message = wrap(
        envelope.stage, envelope.context, "", visitor, envelope.payload
    )
    return request


def honest_seat(dice: Dice) -> tuple[Values, SeatedRun, CohortSpec, DealingNote]:
    lying = dice.random() < 0.4
    run = seated(INVITED if lying or dice.random() < 0.5 else OPEN, lying)
    invitation, visitor = None, dice.randbytes(16).hex()
    if run.admission == INVITED:
        issued = Invitation.issue(run.inviter, not_after=NOW + 1000)
        invitation, visitor = issued.text(), issued.identity.node_id
    spec = cohort(dice, run)
    assert run.ring.dealt is not None
    note = DealingNote.FromString(run.ring.dealt.note.SerializeToString())
    given: Values = {
        "run": RUN,
        "visitor": visitor,
        "admission": run.admission,
        "invitation": invitation,
        "enrolmentKey": run.enrolment.key.public_key.hex() if lying else None,
        "revoked": ["0"],
        "policy": {"largestTotalEpsilon": "20"} if dice.random() < 0.8 else {},
        "range": None,
        "windowMs": 0,
        "now": NOW,
        "history": [],
        "arms": list(ARMS),
    }
    return given, run, spec, note


# --- What a server, or a person's own terms, may change. One of them, or none.


def _make(dice: Dice, changes: Changes) -> str:
    """Make one of the changes; return its name."""
    name = dice.choice(sorted(changes))
    changes[name]()
    return name


def _beyond_proofs(given: Values, spec: CohortSpec) -> None:
    given["policy"] = {"largestEpsilon": 100, "largestTotalEpsilon": 1000}
    spec.epsilon.CopyFrom(to_rational(Fraction(65)))
    spec.proved_inputs, spec.modulus = True, 2**61


def _change_spec(dice: Dice, given: Values, spec: CohortSpec) -> str:
    changes: Changes = {
        "modulus-too-small": lambda: setattr(
            spec, "modulus", spec.modulus - dice.choice((1, 2, 3))
        ),
        "modulus-too-large": lambda: setattr(
            spec, "modulus", 2**62 + dice.randrange(2)
        ),
        "quorum-is-the-floor": lambda: setattr(spec, "quorum", spec.honest_floor),
        "quorum-above-size": lambda: setattr(spec, "quorum", spec.cohort_size + 1),
        "floor-a-third": lambda: setattr(spec, "honest_floor", spec.cohort_size // 3),
        "floor-none": lambda: setattr(spec, "honest_floor", 0),
        "cohort-of-19": lambda: setattr(spec, "cohort_size", 19),
        "cohort-beyond-all": lambda: setattr(spec, "cohort_size", 10**10 + 1),
        "mechanism-unknown": lambda: setattr(
            spec, "mechanism", dice.choice(("non-private", "dist", "shuffle-dp"))
        ),
        "mechanism-missing": lambda: setattr(spec, "mechanism", ""),
        "backend-unknown": lambda: setattr(
            spec, "backend", dice.choice(("shuffle", "secagg-plus", "x"))
        ),
        "run-of-the-terms": lambda: setattr(spec, "run_id", "another"),
        "cohort-id-length": lambda: setattr(
            spec, "cohort_id", "x" * dice.choice((0, 200, 201))
        ),
        "arm-name-letters": lambda: setattr(
            spec, "arm_name", dice.choice(("\n", "x" * 201, "", "é\x85"))
        ),
        "batch-zero": lambda: setattr(spec, "batch", 0),
        "window-stated": lambda: setattr(
            spec, "window_ms", dice.choice((1, 7 * 86_400_001, 60_000))
        ),
        "admission-stated": lambda: setattr(
            spec, "admission", dice.choice(("", "anybody", "open"))
        ),
        "part-missing": lambda: spec.ClearField(
            dice.choice(("epsilon", "scale", "threat", "quorum"))
        ),
        "epsilon-stated": lambda: spec.epsilon.CopyFrom(
            to_rational(Fraction(dice.choice(("3/2", "101", "1/2000"))))
        ),
        "scale-stated": lambda: spec.scale.CopyFrom(
            to_rational(Fraction(dice.choice(("1/2", "5/4", "1001"))))
        ),
        "wrap-stated": lambda: spec.wrap_probability.CopyFrom(
            to_rational(Fraction(dice.choice((0, 1, "1/7"))))
        ),
        "corrupt-stated": lambda: spec.threat.corrupt.CopyFrom(
            to_rational(Fraction(dice.choice(("1/20", "1", "1/2"))))
        ),
        "corrupt-no-fraction": lambda: setattr(spec.threat.corrupt, "denominator", 0),
        "dropout-stated": lambda: spec.threat.dropout.CopyFrom(
            to_rational(Fraction(dice.choice(("9/10", "3/2"))))
        ),
        "lying-flipped": lambda: setattr(
            spec.threat, "malicious_server", not spec.threat.malicious_server
        ),
        "range-high": lambda: setattr(
            spec.reward_range, "high", dice.choice(("1", "2", "x", "1" * 31))
        ),
        "range-unit": lambda: setattr(spec.reward_range, "unit", "€"),
        "epsilon-beyond-proofs": lambda: _beyond_proofs(given, spec),
    }
    return _make(dice, changes)


def _without_capacity(given: Values) -> None:
    """Make the invitation one of a certificate for nobody."""
    if given["invitation"]:
        identity = Invitation.read(given["invitation"]).identity
        assert identity.certificate is not None
        nobody = replace(identity.certificate, capacity=0)
        given["invitation"] = Invitation(identity.enrolled(nobody)).text()


def _change_terms(dice: Dice, given: Values, spec: CohortSpec) -> str:
    policy = given["policy"]
    changes: Changes = {
        "agreed-epsilon": lambda: policy.update(largestEpsilon="1/4"),
        "agreed-total": lambda: policy.update(largestTotalEpsilon="3/4"),
        "agreed-cohort": lambda: policy.update(smallestCohort=250),
        "agreed-nodes": lambda: policy.update(smallestNodes=dice.choice((4, 300))),
        "agreed-trustees": lambda: policy.update(smallestTrustees=dice.choice((6, 5))),
        "agreed-trustees-by-name": lambda: policy.update(
            trustees=list(names(dice.choice((4, 5, 6, 11))))
        ),
        "agreed-floor": lambda: policy.update(smallestFloorFraction="9/10"),
        "agreed-corrupt": lambda: policy.update(smallestCorrupt="1/5"),
        "agreed-lying": lambda: policy.update(maliciousServer=dice.random() < 0.5),
        "agreed-mechanisms": lambda: policy.update(mechanisms=["dist-dp", "local-dp"]),
        "agreed-backends": lambda: policy.update(backends=["secagg-plus"]),
        "agreed-two-arms": lambda: policy.update(arms=list(ARMS[:2])),
        "agreed-all-arms": lambda: policy.update(arms=list(ARMS)),
        "agreed-delta": lambda: policy.update(privacyDelta="1/10000000000"),
        "agreed-range": lambda: given.update(range=["0", "200", "€"]),
        "agreed-window": lambda: given.update(windowMs=10),
        "certificates-expire": lambda: given.update(now=NOW + dice.choice((999, 1001))),
        "no-enrolment-key": lambda: given.update(enrolmentKey=None),
        "arms-without-its-own": lambda: given.update(arms=["red", "mauve"]),
        "came-to-another-run": lambda: given.update(run="another"),
        "came-otherwise": lambda: given.update(
            admission=dice.choice(("enrolled", "invited", "open"))
        ),
        "somebody-else": lambda: given.update(visitor="somebody-else"),
        "capacity-none": lambda: _without_capacity(given),
    }
    return _make(dice, changes)


def _past(dice: Dice, run: str, cohort_id: str) -> Values:
    kind = dice.choice(("pure", "renyi", "concentrated"))
    return {
        "run": run,
        "cohort": cohort_id,
        "kind": kind,
        "epsilon": dice.choice(("1/10", "1/4", "1/2", "1")),
        "precision": "12" if kind == "renyi" else "0",
        "delta": "0",
    }


def _change_history(dice: Dice, given: Values, spec: CohortSpec) -> str:
    changes: dict[str, Callable[[], list[Values]]] = {
        "spent-elsewhere": lambda: [
            _past(dice, f"run-{i + 2}", "c") for i in range(dice.randrange(1, 4))
        ],
        "came-before": lambda: [
            _past(dice, RUN, dice.choice(("", "c", spec.cohort_id)))
        ],
        "many-prices": lambda: [
            _past(dice, f"run-{i + 2}", "") | {"epsilon": f"1/{i + 7}"}
            for i in range(dice.randrange(4, 7))
        ],
    }
    name = dice.choice(sorted(changes))
    given["history"] = changes[name]()
    return name


def _revoke(given: Values, certificate: bytes) -> None:
    given["revoked"] = [str(Certificate.from_bytes(certificate).serial)]


def _change_note(dice: Dice, given: Values, note: DealingNote) -> str:
    evidence = DealingEvidence.FromString(note.evidence)
    committee = DealtCommittee.FromString(evidence.committee)
    accepted = evidence.accepted
    point = bytes(KeyPair(dice.randrange(1, ORDER)).point)
    changes: Changes = {
        "key-of-the-server": lambda: setattr(note, "key", point),
        "key-no-point": lambda: setattr(
            note, "key", dice.choice((b"", b"\2" * 33, b"\4" + bytes(64)))
        ),
        "dealing-name": lambda: setattr(
            note, "name", dice.choice((b"", dice.randbytes(32)))
        ),
        "evidence-cut-short": lambda: setattr(
            note, "evidence", note.evidence[: dice.randrange(200)]
        ),
    }
    if accepted:
        one = accepted[dice.randrange(len(accepted))]
        changes |= {
            "dealer-missing": lambda: accepted.pop(),
            "no-dealer": lambda: evidence.ClearField("accepted"),
            "dealer-twice": lambda: accepted.append(accepted[0]),
            "dealer-unknown": lambda: setattr(one, "dealer", "somebody"),
            "dealer-constant": lambda: setattr(one, "constant", point),
            "dealer-no-constant": lambda: setattr(one, "constant", b""),
            "dealer-proof": lambda: setattr(
                one, "proof", dice.randbytes(dice.choice((63, 64)))
            ),
            "dealer-rest": lambda: setattr(one, "rest", dice.randbytes(32)),
            "dealer-signature": lambda: setattr(
                one, "signature", dice.choice((b"", dice.randbytes(64)))
            ),
            "dealer-certificate-of-another": lambda: setattr(
                one, "certificate", accepted[0].certificate
            ),
            "dealer-certificate-revoked": lambda: _revoke(given, one.certificate),
            "dealer-certificate-too-long": lambda: setattr(
                one, "certificate", dice.randbytes(1025)
            ),
            "evidence-of-another-run": lambda: setattr(
                evidence.spec, "run_id", "another"
            ),
            "evidence-of-a-cohort": lambda: setattr(
                evidence.spec, "mechanism", "dist-dp"
            ),
            "evidence-threat": lambda: setattr(
                evidence.spec.threat.corrupt, "numerator", 0
            ),
            "evidence-no-threat": lambda: setattr(
                evidence.spec.threat.corrupt, "denominator", 0
            ),
            "evidence-too-many-corrupt": lambda: evidence.spec.threat.corrupt.CopyFrom(
                to_rational(Fraction(9, 10))
            ),
            "roster-size": lambda: setattr(evidence.roster, "size", 4),
            "roster-digest": lambda: setattr(
                evidence.roster, "digest", dice.randbytes(32)
            ),
            "roster-missing": lambda: evidence.roster.ClearField("roster"),
            "committee-missing": lambda: evidence.ClearField("committee"),
            "committee-order": lambda: committee.places.reverse(),
            "committee-incomplete": lambda: committee.members.pop(),
            "committee-stranger": lambda: committee.members.__setitem__(0, "somebody"),
        }
    body = note.evidence
    name = _make(dice, changes)
    if note.evidence == body and accepted:
        if evidence.committee:
            evidence.committee = committee.SerializeToString()
        note.evidence = evidence.SerializeToString()
    return name


def _change_request(dice: Dice, request: NodeRequest, visitor: str) -> str:
    stage = request.tasks[0].stage
    envelope = unwrap(stage.message)
    payload = SealRequest.FromString(envelope.payload)

    def wraps(
        number: int = int(envelope.stage),
        context: bytes = envelope.context,
        to: str = envelope.receiver,
        body: bytes | None = None,
    ) -> None:
        said = payload.SerializeToString() if body is None else body
        stage.message = wrap(number, context, "", to, said)

    changes: Changes = {
        "seats-digest": lambda: payload.roster.ClearField("digest"),
        "seats-number": lambda: setattr(
            payload.roster, "size", payload.roster.size - 1
        ),
        "seats-listed": lambda: setattr(payload.roster, "roster", b"\n\1x\22\1\1"),
        "dealing-missing": lambda: payload.ClearField("dealing"),
        "person-twice": lambda: stage.users.append(visitor),
        "two-people": lambda: stage.users.append("somebody"),
        "nobody": lambda: stage.ClearField("users"),
        "another-person": lambda: stage.users.__setitem__(0, "somebody"),
        "request-of-another-run": lambda: setattr(request, "run_id", "another"),
        "two-tasks": lambda: request.tasks.add(),
        "task-describe": lambda: request.tasks[0].describe.SetInParent(),
        "task-missing": lambda: request.tasks[0].ClearField("stage"),
    }
    asks = OpenRequest(roster=payload.roster, dealing=payload.dealing.name)
    changes |= {
        "another-stage": lambda: wraps(dice.choice((0, 4, 9, 10, 14, 99))),
        "asks-to-open": lambda: wraps(13, body=asks.SerializeToString()),
        "another-context": lambda: wraps(context=dice.randbytes(32)),
        "to-another": lambda: wraps(to="somebody"),
        "message-cut-short": lambda: setattr(stage, "message", stage.message[:-1]),
    }
    before = stage.message
    name = _make(dice, changes)
    if stage.message == before:
        wraps()
    return name


def _flipped(dice: Dice, body: bytes) -> bytes:
    changed = bytearray(body)
    for _ in range(dice.choice((1, 1, 3))):
        changed[dice.randrange(len(changed))] ^= 1 << dice.randrange(8)
    return bytes(changed[: dice.choice((len(changed), len(changed) - 7))])


def draw_seat(dice: Dice) -> Values:
    """Draw a seat: a few are honest, each of the others is wrong in one way (`why`)."""
    given, _, spec, note = honest_seat(dice)
    kind, why = dice.randrange(8), "honest"
    if kind in (1, 2):
        why = _change_spec(dice, given, spec)
    elif kind == 3:
        why = _change_terms(dice, given, spec)
    elif kind == 4:
        why = _change_history(dice, given, spec)
    elif kind == 5:
        why = _change_note(dice, given, note)
    request = request_of(spec, note, given["visitor"])
    if kind == 6:
        why = _change_request(dice, request, given["visitor"])
    body = request.SerializeToString()
    if kind == 7:
        why, body = "bits-flipped", _flipped(dice, body)
    return given | {"why": why, "request": body.hex()}


def draw_answer(dice: Dice) -> Values:
    """Draw an honest seat, an outcome and all that is random in its answer."""
    given, run, spec, note = honest_seat(dice)
    given["policy"] = {"largestTotalEpsilon": "20"}
    terms = SeatTerms(seat_terms(spec, note), run.trust)
    given["request"] = terms.request_for(given["visitor"]).hex()
    given["outcome"] = dice.choice((0.0, 1.0, dice.random()))
    given["words"] = [str(dice.getrandbits(64)) for _ in range(30)]
    if dice.random() < 0.1:  # noise that comes once in 2^63: beyond what can be proved
        given["words"][1] = str(2**64 - 4)
    given["scalars"] = [str(dice.randrange(1, ORDER)) for _ in range(60)]
    given["fresh"] = dice.randbytes(32).hex()
    return given
