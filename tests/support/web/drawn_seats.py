"""Draws seats for golden vectors: honest ones, and those of servers that lie."""

from __future__ import annotations

import random
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from typing import Any

from tests.support.seated_sums import ARMS, RUN, SeatedRun
from tests.support.secure_sums import NOW, names
from wallflower.protocol.cohort import to_rational
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
    SealRequest,
)
from wallflower.strategy.secure_sum.contributions import SeatTerms, seat_terms

Dice = random.Random
Values = dict[str, Any]
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


def _request(spec: CohortSpec, note: DealingNote, visitor: str) -> NodeRequest:
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


def _honest(dice: Dice) -> tuple[Values, SeatedRun, CohortSpec, DealingNote]:
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
        "policy": {"largestTotalEpsilon": "20"} if dice.random() < 0.8 else {},
        "range": None,
        "windowMs": 0,
        "now": NOW,
        "history": [],
        "arms": list(ARMS),
    }
    return given, run, spec, note


# --- What a server, or a person's own terms, may change. One of them, or none.


def _change_spec(dice: Dice, given: Values, spec: CohortSpec) -> None:
    changes: list[Callable[[], object]] = [
        lambda: setattr(spec, "modulus", spec.modulus - dice.choice((1, 2, 3))),
        lambda: setattr(spec, "modulus", 2**62 + dice.randrange(2)),
        lambda: setattr(spec, "quorum", spec.honest_floor),
        lambda: setattr(spec, "quorum", spec.cohort_size + 1),
        lambda: setattr(spec, "honest_floor", spec.cohort_size // 3),
        lambda: setattr(spec, "honest_floor", 0),
        lambda: setattr(spec, "cohort_size", 19),
        lambda: setattr(spec, "cohort_size", 10**10 + 1),
        lambda: setattr(
            spec, "mechanism", dice.choice(("non-private", "dist", "shuffle-dp"))
        ),
        lambda: setattr(spec, "mechanism", ""),
        lambda: setattr(spec, "backend", dice.choice(("shuffle", "secagg-plus", "x"))),
        lambda: setattr(spec, "run_id", "another"),
        lambda: setattr(spec, "cohort_id", "x" * dice.choice((0, 200, 201))),
        lambda: setattr(spec, "arm_name", dice.choice(("\n", "x" * 201, "", "é\x85"))),
        lambda: setattr(spec, "batch", 0),
        lambda: setattr(spec, "window_ms", dice.choice((1, 7 * 86_400_001, 60_000))),
        lambda: setattr(spec, "admission", dice.choice(("", "anybody", "open"))),
        lambda: spec.ClearField(dice.choice(("epsilon", "scale", "threat", "quorum"))),
        lambda: spec.epsilon.CopyFrom(
            to_rational(Fraction(dice.choice(("3/2", "101", "1/2000"))))
        ),
        lambda: spec.scale.CopyFrom(
            to_rational(Fraction(dice.choice(("1/2", "5/4", "1001"))))
        ),
        lambda: spec.wrap_probability.CopyFrom(
            to_rational(Fraction(dice.choice((0, 1, "1/7"))))
        ),
        lambda: spec.threat.corrupt.CopyFrom(
            to_rational(Fraction(dice.choice(("1/20", "1", "1/2"))))
        ),
        lambda: setattr(spec.threat.corrupt, "denominator", 0),
        lambda: spec.threat.dropout.CopyFrom(
            to_rational(Fraction(dice.choice(("9/10", "3/2"))))
        ),
        lambda: setattr(
            spec.threat, "malicious_server", not spec.threat.malicious_server
        ),
        lambda: setattr(
            spec.reward_range, "high", dice.choice(("1", "2", "x", "1" * 31))
        ),
        lambda: setattr(spec.reward_range, "unit", "€"),
    ]
    dice.choice(changes)()


def _change_terms(dice: Dice, given: Values, spec: CohortSpec) -> None:
    policy = given["policy"]
    changes: list[Callable[[], object]] = [
        lambda: policy.update(largestEpsilon="1/4"),
        lambda: policy.update(largestTotalEpsilon="3/4"),
        lambda: policy.update(smallestCohort=250),
        lambda: policy.update(smallestNodes=dice.choice((4, 300))),
        lambda: policy.update(smallestTrustees=dice.choice((6, 5))),
        lambda: policy.update(trustees=list(names(dice.choice((4, 5, 6, 11))))),
        lambda: policy.update(smallestFloorFraction="9/10"),
        lambda: policy.update(smallestCorrupt="1/5"),
        lambda: policy.update(maliciousServer=dice.random() < 0.5),
        lambda: policy.update(mechanisms=["dist-dp", "local-dp"]),
        lambda: policy.update(backends=["secagg-plus"]),
        lambda: policy.update(arms=list(ARMS[:2])),
        lambda: policy.update(arms=list(ARMS)),
        lambda: policy.update(privacyDelta="1/10000000000"),
        lambda: given.update(range=["0", "200", "€"]),
        lambda: given.update(windowMs=10),
        lambda: given.update(now=NOW + dice.choice((999, 1001))),
        lambda: given.update(enrolmentKey=None),
        lambda: given.update(arms=["red", "mauve"]),
        lambda: given.update(run="another"),
        lambda: given.update(admission=dice.choice(("enrolled", "invited", "open"))),
        lambda: given.update(visitor="somebody-else"),
    ]
    dice.choice(changes)()


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


def _change_history(dice: Dice, given: Values, spec: CohortSpec) -> None:
    changes: list[Callable[[], list[Values]]] = [
        lambda: [_past(dice, f"run-{i + 2}", "c") for i in range(dice.randrange(1, 4))],
        lambda: [_past(dice, RUN, dice.choice(("", "c", spec.cohort_id)))],
        lambda: [
            _past(dice, f"run-{i + 2}", "") | {"epsilon": f"1/{i + 7}"}
            for i in range(dice.randrange(4, 7))
        ],
    ]
    given["history"] = dice.choice(changes)()


def _change_note(dice: Dice, note: DealingNote) -> None:
    evidence = DealingEvidence.FromString(note.evidence)
    committee = DealtCommittee.FromString(evidence.committee)
    accepted = evidence.accepted
    point = bytes(KeyPair(dice.randrange(1, ORDER)).point)
    changes: list[Callable[[], object]] = [
        lambda: setattr(note, "key", point),
        lambda: setattr(note, "key", dice.choice((b"", b"\2" * 33, b"\4" + bytes(64)))),
        lambda: setattr(note, "name", dice.choice((b"", dice.randbytes(32)))),
        lambda: setattr(note, "evidence", note.evidence[: dice.randrange(200)]),
    ]
    if accepted:
        one = accepted[dice.randrange(len(accepted))]
        changes += [
            lambda: accepted.pop(),
            lambda: evidence.ClearField("accepted"),
            lambda: accepted.append(accepted[0]),
            lambda: setattr(one, "dealer", "somebody"),
            lambda: setattr(one, "constant", point),
            lambda: setattr(one, "constant", b""),
            lambda: setattr(one, "proof", dice.randbytes(dice.choice((63, 64)))),
            lambda: setattr(one, "rest", dice.randbytes(32)),
            lambda: setattr(one, "signature", dice.choice((b"", dice.randbytes(64)))),
            lambda: setattr(one, "certificate", accepted[0].certificate),
            lambda: setattr(one, "certificate", dice.randbytes(1025)),
            lambda: setattr(evidence.spec, "run_id", "another"),
            lambda: setattr(evidence.spec, "mechanism", "dist-dp"),
            lambda: setattr(evidence.spec.threat.corrupt, "numerator", 0),
            lambda: setattr(evidence.roster, "size", 4),
            lambda: setattr(evidence.roster, "digest", dice.randbytes(32)),
            lambda: evidence.roster.ClearField("roster"),
            lambda: evidence.ClearField("committee"),
            lambda: committee.places.reverse(),
            lambda: committee.members.pop(),
            lambda: committee.members.__setitem__(0, "somebody"),
        ]
    body = note.evidence
    dice.choice(changes)()
    if note.evidence == body and accepted:
        if evidence.committee:
            evidence.committee = committee.SerializeToString()
        note.evidence = evidence.SerializeToString()


def _change_request(dice: Dice, request: NodeRequest, visitor: str) -> None:
    stage = request.tasks[0].stage
    envelope = unwrap(stage.message)
    payload = SealRequest.FromString(envelope.payload)
    number, context, to = int(envelope.stage), envelope.context, envelope.receiver
    changes: list[Callable[[], object]] = [
        lambda: payload.roster.ClearField("digest"),
        lambda: setattr(payload.roster, "size", payload.roster.size - 1),
        lambda: setattr(payload.roster, "roster", b"\n\1x\22\1\1"),
        lambda: payload.ClearField("dealing"),
        lambda: stage.users.append(visitor),
        lambda: stage.users.append("somebody"),
        lambda: stage.ClearField("users"),
        lambda: stage.users.__setitem__(0, "somebody"),
        lambda: setattr(request, "run_id", "another"),
        lambda: request.tasks.add(),
        lambda: request.tasks[0].describe.SetInParent(),
        lambda: request.tasks[0].ClearField("stage"),
    ]
    place = dice.randrange(len(changes) + 4)
    if place < len(changes):
        changes[place]()
    elif place == len(changes):
        number = dice.choice((0, 4, 9, 10, 13, 14, 99))
    elif place == len(changes) + 1:
        context = dice.randbytes(32)
    elif place == len(changes) + 2:
        to = "somebody"
    if place <= len(changes) + 2:
        stage.message = wrap(number, context, "", to, payload.SerializeToString())
    else:
        stage.message = stage.message[:-1]


def _flipped(dice: Dice, body: bytes) -> bytes:
    changed = bytearray(body)
    for _ in range(dice.choice((1, 1, 3))):
        changed[dice.randrange(len(changed))] ^= 1 << dice.randrange(8)
    return bytes(changed[: dice.choice((len(changed), len(changed) - 7))])


def draw_seat(dice: Dice) -> Values:
    """Draw a seat: a fifth of them honest, each of the others wrong in one way."""
    given, _, spec, note = _honest(dice)
    kind = dice.randrange(8)
    if kind == 0:
        given["visitor_note"] = "honest"
    elif kind in (1, 2):
        _change_spec(dice, given, spec)
    elif kind == 3:
        _change_terms(dice, given, spec)
    elif kind == 4:
        _change_history(dice, given, spec)
    elif kind == 5:
        _change_note(dice, note)
    given.pop("visitor_note", None)
    request = _request(spec, note, given["visitor"])
    if kind == 6:
        _change_request(dice, request, given["visitor"])
    body = request.SerializeToString()
    given["request"] = (_flipped(dice, body) if kind == 7 else body).hex()
    return given


def draw_answer(dice: Dice) -> Values:
    """Draw an honest seat, an outcome and all that is random in its answer."""
    given, run, spec, note = _honest(dice)
    given["policy"] = {"largestTotalEpsilon": "20"}
    terms = SeatTerms(seat_terms(spec, note), run.trust)
    given["request"] = terms.request_for(given["visitor"]).hex()
    given["outcome"] = dice.choice((0.0, 1.0, dice.random()))
    given["words"] = [str(dice.getrandbits(64)) for _ in range(30)]
    given["scalars"] = [str(dice.randrange(1, ORDER)) for _ in range(60)]
    given["fresh"] = dice.randbytes(32).hex()
    return given
