"""Draws inputs of golden vectors, by kind."""

from __future__ import annotations

import json
import random
import struct
import sys
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

from tests.support.web.drawn_seats import draw_answer, draw_seat
from tests.support.web.vectors import COMPUTE, SAMPLE, Values, _table_of
from wallflower.protocol.cohort import to_rational
from wallflower.protocol.identity.enrolment import EnrolmentKey
from wallflower.protocol.privacy.calibration import precision_for
from wallflower.protocol.privacy.mechanism import mechanism_named
from wallflower.protocol.refusals import RefusalCode
from wallflower.protocol.secure_sum.sealed.group import ORDER, KeyPair
from wallflower.protocol.visitors import NO_SEAT_REASONS, Invitation
from wallflower.protocol.wire.cohort_pb2 import CohortSpec
from wallflower.protocol.wire.visitors_pb2 import VisitorReply

Dice = random.Random
MECHANISMS = ("dist-dp", "dist-rdp", "dist-cdp", "local-dp")
EPSILONS = ("1/10", "1/5", "1/3", "1/2", "1", "2", "37/100")
NAMES = ("run-1", "größte", "日本\x7f", 'a"b\\', "😀 arm", "x" * 200, "tab\there")


def _context(dice: Dice) -> Values:
    def rational() -> Any:
        return to_rational(Fraction(dice.randrange(100), dice.randrange(1, 100)))

    spec = CohortSpec(
        run_id=dice.choice(NAMES),
        batch=dice.randrange(2**32),
        arm=dice.randrange(9),
        cohort_id=f"cohort-{dice.randrange(99)}",
        mechanism=dice.choice(MECHANISMS),
        epsilon=rational(),
        wrap_probability=rational() if dice.random() < 0.7 else None,
        cohort_size=dice.randrange(2**64),
        quorum=dice.randrange(100),
        backend="sealed",
        modulus=dice.randrange(2**62),
        arm_name=dice.choice(NAMES),
        proved_inputs=dice.random() < 0.5,
        window_ms=dice.randrange(10**6),
        admission=dice.choice(("", "open", "invited")),
    )
    if dice.random() < 0.7:
        spec.threat.malicious_server = dice.random() < 0.5
        spec.threat.corrupt.CopyFrom(rational())
    if dice.random() < 0.5:
        spec.reward_range.low, spec.reward_range.unit = "-1/3", dice.choice(NAMES)
    return {
        "spec": spec.SerializeToString().hex(),
        "roster": dice.randbytes(32).hex(),
        "size": dice.randrange(2**32),
    }


def _law(dice: Dice) -> Values:
    """Draw the law of one user's noise in a cohort such as there are."""
    epsilon, size = Fraction(dice.choice(EPSILONS)), dice.randrange(20, 4000)
    floor = dice.randrange(size // 2, size + 1)
    name = dice.choice(MECHANISMS)
    if name in ("dist-dp", "local-dp"):
        rate = epsilon / precision_for(epsilon, size)
        shape = Fraction(1, floor) if name == "dist-dp" else Fraction(1)
        return {"kind": "difference", "shape": str(shape), "rate": str(rate)}
    scale = dice.choice((2, 10, Fraction(7, 2)))
    share = (precision_for(epsilon, size, scale) / epsilon) ** 2 / floor
    kind = "skellam" if name == "dist-rdp" else "gaussian"
    return {"kind": kind, "variance": str(share)}


def _table(dice: Dice) -> Values:
    return {"law": _law(dice)}


def _draw(dice: Dice) -> Values:
    # A law serves many draws, as in a page; now and then a word hits a threshold.
    law = _law(random.Random(dice.randrange(40)))
    first = dice.getrandbits(64)
    if dice.random() < 0.01:
        thresholds = _table_of(law).thresholds
        first = int(thresholds[dice.randrange(len(thresholds))]) << 1 | first & 1
    words = [first, *(dice.getrandbits(64) for _ in range(8))]
    return {"law": law, "words": [str(word) for word in words]}


def _double(dice: Dice) -> float:
    kind = dice.randrange(4)
    if kind == 0:
        return dice.choice((0.0, 1.0, 0.5, 5e-324, 1e-300, 2**-60, 1 - 2**-53))
    return dice.random() if kind < 3 else dice.random() * 2.0 ** -dice.randrange(200)


def _round(dice: Dice) -> Values:
    reward = _double(dice)
    precision = dice.randrange(1, 2 ** dice.randrange(1, 62))
    first = dice.getrandbits(64)
    if dice.random() < 0.05:  # a word that agrees with the fraction's first bits
        first = int(Fraction(reward) * precision % 1 * 2**64)
    return {
        "reward": struct.pack(">d", reward).hex(),
        "precision": str(precision),
        "words": [str(first), *(str(dice.getrandbits(64)) for _ in range(20))],
    }


def _parameters(dice: Dice) -> Values:
    name, epsilon = dice.choice(MECHANISMS), dice.choice(EPSILONS)
    size = dice.randrange(2, 10 ** dice.randrange(2, 5))
    floor = dice.randrange(size // 2 + 1, size + 1)
    scale = dice.choice(("2", "10", "7/2"))
    wrap = Fraction(1, dice.choice((100, 1000, 10**6, 10**9)))
    mechanism = mechanism_named(name, Fraction(epsilon), Fraction(scale))
    bound = mechanism.for_cohort(size, floor, wrap).noise_bound
    return {
        "mechanism": name,
        "epsilon": epsilon,
        "scale": scale,
        "size": size,
        "floor": floor,
        "wrap": str(wrap),
        "bounds": [str(bound), str(bound - 1), str(bound + dice.randrange(100))],
        "proved": dice.random() < 0.3,
    }


def _scalar(dice: Dice) -> str:
    return str(dice.randrange(1, ORDER))


def _sealing(dice: Dice) -> Values:
    key = KeyPair(int(_scalar(dice))).point
    low, width = -dice.randrange(10**4), dice.randrange(1, 10**5)
    proved = dice.random() < 0.5
    value = dice.randrange(low, low + width + 1)
    return {
        "key": bytes(key).hex(),
        "value": str(value),
        "context": dice.randbytes(32).hex(),
        "sender": dice.choice(NAMES),
        "scalars": [_scalar(dice) for _ in range(40)],
        "fresh": dice.randbytes(32).hex(),
        "range": [str(low), str(low + width)] if proved else None,
    }


def _invitation(dice: Dice) -> Values:
    inviter = EnrolmentKey.from_private_bytes(dice.randbytes(32))
    text = Invitation.issue(inviter, not_after=dice.randrange(2**40)).text()
    if dice.random() < 0.3:
        place = dice.randrange(len(text))
        text = text[:place] + dice.choice(("", "A", "+", "é")) + text[place + 1 :]
    return {
        "text": text,
        "run": dice.choice(NAMES),
        "arrival": dice.randbytes(16).hex(),
    }


def _sizes(dice: Dice) -> Values:
    nodes = dice.randrange(1, dice.choice((8, 70, 400)))
    return {
        "corrupt": str(Fraction(dice.randrange(40), 100)),
        "dropout": str(Fraction(dice.randrange(30), 100)),
        "lying": dice.random() < 0.5,
        "nodes": nodes,
    }


def _cost(dice: Dice) -> Values:
    kind = dice.choice(("pure", "pure", "renyi", "concentrated"))
    delta = Fraction(1, 2**40) if dice.random() < 0.2 else Fraction(0)
    return {
        "kind": kind,
        "epsilon": dice.choice(EPSILONS),
        "precision": str(dice.randrange(1, 100) if kind == "renyi" else 0),
        "delta": str(delta),
    }


def _account(dice: Dice) -> Values:
    spends = [_cost(dice) for _ in range(dice.randrange(1, 6))]
    delta = Fraction(1, 10 ** dice.randrange(4, 10))
    return {"spends": spends, "delta": str(delta)}


def _range(dice: Dice) -> Values:
    ends = ("0", "1", "-1/3", "200", "2.5e-1", "1_000", "x", "", "1/0", "1e13", " 7 ")
    return {
        "low": dice.choice(ends),
        "high": dice.choice(ends),
        "unit": dice.choice(("", "€", "kg", " m", "a" * 21, "\n", "日本")),
        "outcome": struct.pack(">d", dice.uniform(-300, 300)).hex(),
    }


def _reply(dice: Dice) -> Values:
    """Draw what a server says of a poll: sometimes to the other kind of poll."""
    reply, kind = VisitorReply(), dice.randrange(5)
    if kind == 0:
        reply.seat.request, reply.seat.arms[:] = b"x", ["red"]
    elif kind == 1:
        reply.taken.SetInParent()
    elif kind < 4:
        codes = *sorted(RefusalCode), "", "no-such-code", "<b>"
        reply.refused.code = dice.choice(codes)
        reply.refused.again = dice.random() < 0.2
    else:
        reply.no_seat.arm = dice.randrange(3)
        reply.no_seat.arm_name = dice.choice(("red", "blue", "", "\n", "x" * 201, "ß"))
        reply.no_seat.reason = dice.choice((*sorted(NO_SEAT_REASONS), "", "<b>"))
    body = reply.SerializeToString()
    if dice.random() < 0.1:
        body = dice.choice((b"", body[:-1], body + b"\xff"))
    return {
        "answering": dice.random() < 0.4,
        "body": body.hex(),
        "policy": dice.choice(({}, {"arms": ["red", ""]})),
        "enrolmentKey": None,
    }


DRAW: dict[str, Callable[[Dice], Values]] = {
    "context": _context,
    "table": _table,
    "draw": _draw,
    "round": _round,
    "parameters": _parameters,
    "sealing": _sealing,
    "invitation": _invitation,
    "sizes": _sizes,
    "account": _account,
    "range": _range,
    "seat": draw_seat,
    "answer": draw_answer,
    "reply": _reply,
}
# How many of each `make test-web` draws, and how many are kept with the code.
MANY = {
    "context": 20_000,
    "table": 600,
    "draw": 30_000,
    "round": 40_000,
    "parameters": 600,
    "sealing": 300,
    "invitation": 1_500,
    "sizes": 1_000,
    "account": 1_000,
    "range": 12_000,
    "seat": 4_000,
    "answer": 100,
    "reply": 3_000,
}
FEW = dict.fromkeys(MANY, 12) | {
    "seat": 4000,
    "sealing": 4,
    "answer": 24,
    "reply": 4000,
}
NAMED = {"seat": "why", "reply": "answering", "answer": "admission"}


def _kept(kind: str, cases: list[Values]) -> list[Values]:
    """Keep the shortest case of each lie and outcome: the shared table of refusals."""
    kept: dict[tuple[Any, str], Values] = {}
    for case in sorted(cases, key=lambda one: len(json.dumps(one))):
        said = str(case["out"])
        out = case["out"].get(
            "code", said if len(said) < 100 else str(len(said) // 999)
        )
        kept.setdefault((case["in"][NAMED[kind]], out), case)
    return [kept[name] for name in sorted(kept, key=str)]


def write(folder: Path, counts: dict[str, int], seed: int) -> None:
    """Write so many cases of each kind."""
    folder.mkdir(parents=True, exist_ok=True)
    for kind, count in counts.items():
        begun = time.monotonic()
        dice = random.Random(f"{seed} {kind}")
        given = [DRAW[kind](dice) for _ in range(count)]
        cases = [{"in": one, "out": COMPUTE[kind](one)} for one in given]
        if folder == SAMPLE and kind in NAMED:
            cases = _kept(kind, cases)
        lines = ",\n".join(json.dumps(case, ensure_ascii=True) for case in cases)
        (folder / f"{kind}.json").write_text(f"[\n{lines}\n]\n")
        print(f"{kind}: {count} cases in {time.monotonic() - begun:.1f} s", flush=True)


if __name__ == "__main__":
    if sys.argv[1:] == ["sample"]:
        write(SAMPLE, FEW, seed=1)
    else:
        write(Path(sys.argv[1]), MANY, seed=int(sys.argv[2]))
