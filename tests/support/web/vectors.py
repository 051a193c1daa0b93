"""Golden vectors: the same inputs, the same bytes, in Python and in TypeScript.

A case has `in`, everything that goes in, secrets and random draws too, and `out`, what
must come out. `COMPUTE` says by kind what Python makes of an input; clients/web/tests
has the same table. Both sides draw inputs and check the other's outputs.
"""

from __future__ import annotations

import hashlib
import json
import struct
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from tests.support.web.seats import answer_of, code_of, policy_of
from wallflower.clients.host.visitor import (
    ANSWERING,
    ARRIVING,
    read_no_seat,
    read_reply,
)
from wallflower.clients.node.randomizer import encode_one
from wallflower.protocol.accounting.account import Account, Cost
from wallflower.protocol.accounting.truncation import truncation
from wallflower.protocol.errors import InputError, ProtocolError, RefusalError
from wallflower.protocol.noise.bits import Words
from wallflower.protocol.noise.difference import NegativeBinomialDifference
from wallflower.protocol.noise.gaussian import DiscreteGaussian, Skellam
from wallflower.protocol.noise.law import NoiseLaw
from wallflower.protocol.noise.table import CertifiedTable
from wallflower.protocol.numbers import exact
from wallflower.protocol.privacy.mechanism import CohortMechanism, mechanism_named
from wallflower.protocol.rewards.reward_range import RewardRange
from wallflower.protocol.secure_sum.context import context_of
from wallflower.protocol.secure_sum.sealed import group, ranges
from wallflower.protocol.secure_sum.sealed.cipher import (
    encrypt,
    prove_sender,
    statement,
)
from wallflower.protocol.secure_sum.sealed.sizes import dealing_sizes
from wallflower.protocol.secure_sum.threat import Threat
from wallflower.protocol.visitors import VERSION, Invitation, arrival_transcript
from wallflower.protocol.wire.cohort_pb2 import CohortSpec
from wallflower.protocol.wire.node_pb2 import NodeAnswer
from wallflower.protocol.wire.visitors_pb2 import VisitorPoll

Values = dict[str, Any]
REFUSED: Values = {"refused": True}
SAMPLE = Path(__file__).parents[2] / "vectors"


class ListedBits:
    """Words that a case lists."""

    def __init__(self, words: Sequence[str]) -> None:
        self._words = [int(word) for word in words]

    def words(self, count: int) -> Words:
        taken, self._words = self._words[:count], self._words[count:]
        assert len(taken) == count, "the case lists too few words"
        return np.array(taken, dtype=np.uint64)


@contextmanager
def listed_draws(draws: Sequence[bytes]) -> Iterator[None]:
    """Give the group these bytes where it asks the system for random ones."""
    left = list(draws)
    with patch.object(group, "urandom", lambda size: left.pop(0)):
        yield


def law_of(stated: Values) -> NoiseLaw:
    if stated["kind"] == "difference":
        shape, rate = Fraction(stated["shape"]), Fraction(stated["rate"])
        return NegativeBinomialDifference(shape, rate)
    variance = Fraction(stated["variance"])
    return (
        Skellam(variance) if stated["kind"] == "skellam" else DiscreteGaussian(variance)
    )


def mechanism_of(stated: Values) -> CohortMechanism:
    epsilon, scale = Fraction(stated["epsilon"]), Fraction(stated["scale"])
    mechanism = mechanism_named(stated["mechanism"], epsilon, scale)
    return mechanism.for_cohort(
        stated["size"], stated["floor"], Fraction(stated["wrap"])
    )


def _context(given: Values) -> Values:
    spec = CohortSpec.FromString(bytes.fromhex(given["spec"]))
    roster = bytes.fromhex(given["roster"])
    return {"context": context_of(spec, roster, given["size"]).hex()}


_tables: dict[str, CertifiedTable] = {}


def _table_of(stated: Values) -> CertifiedTable:
    name = json.dumps(stated)
    if name not in _tables:
        _tables[name] = CertifiedTable(law_of(stated), 63)
    return _tables[name]


def _table(given: Values) -> Values:
    thresholds = _table_of(given["law"]).thresholds
    body = thresholds.astype("<u8").tobytes()
    return {"length": len(thresholds), "sha256": hashlib.sha256(body).hexdigest()}


def _draw(given: Values) -> Values:
    table = _table_of(given["law"])
    return {"value": str(table.sample_signed(1, ListedBits(given["words"]))[0])}


def _round(given: Values) -> Values:
    (reward,) = struct.unpack(">d", bytes.fromhex(given["reward"]))
    bits = ListedBits(given["words"])
    return {"value": str(encode_one(reward, int(given["precision"]), bits))}


def _parameters(given: Values) -> Values:
    try:
        cohort = mechanism_of(given)
        bound = truncation(cohort).bound if given["proved"] else 0
    except InputError:
        return REFUSED
    stated = [int(one) for one in given["bounds"]]
    return {
        "precision": str(cohort.precision),
        "fits": [one >= cohort.noise_bound for one in stated],
        "truncation": str(bound),
    }


def _sealing(given: Values) -> Values:
    scalars = [int(one).to_bytes(32, "big") for one in given["scalars"]]
    public = group.Point.parse(bytes.fromhex(given["key"]))
    context = bytes.fromhex(given["context"])
    draws = [scalars[0], bytes.fromhex(given["fresh"]), *scalars[1:]]
    with listed_draws(draws):
        sealed, opening = encrypt(public, int(given["value"]))
        one, two = bytes(sealed.one), bytes(sealed.two)
        said = statement(context, given["sender"], 1, one, two)
        made = {"one": one.hex(), "two": two.hex()}
        made["proof"] = prove_sender(opening, said).hex()
        if given["range"]:
            allowed = ranges.Range(*map(int, given["range"]))
            proof = ranges.prove(public, sealed, opening, allowed, said)
            made["range"] = proof.hex()
    return made


def _invitation(given: Values) -> Values:
    try:
        identity = Invitation.read(given["text"]).identity
    except ProtocolError as error:
        return {"code": error.code}
    certificate = identity.certificate
    assert certificate is not None
    poll = VisitorPoll(
        version=VERSION,
        run_id=given["run"],
        visitor=identity.node_id,
        arrival=bytes.fromhex(given["arrival"]),
        certificate=certificate.to_bytes(),
    )
    poll.signature = identity.sign(arrival_transcript(poll))
    return {"poll": poll.SerializeToString().hex()}


def _sizes(given: Values) -> Values:
    corrupt, dropout = Fraction(given["corrupt"]), Fraction(given["dropout"])
    try:
        threat = Threat(corrupt, dropout, malicious_server=given["lying"])
        sizes = dealing_sizes(threat, given["nodes"])
    except InputError:
        return REFUSED
    return {"sizes": [sizes.members, sizes.threshold, sizes.accepted]}


def cost_of(stated: Values) -> Cost:
    return Cost(
        stated["kind"],
        Fraction(stated["epsilon"]),
        int(stated["precision"]),
        Fraction(stated["delta"]),
    )


def _account(given: Values) -> Values:
    account = Account()
    for stated in given["spends"]:
        account = account.plus(cost_of(stated))
    total = account.total(Fraction(given["delta"]))
    return {"epsilon": None if total is None else str(total)}


def _range(given: Values) -> Values:
    (outcome,) = struct.unpack(">d", bytes.fromhex(given["outcome"]))
    try:
        low, high = exact("range", given["low"]), exact("range", given["high"])
        agreed = RewardRange(low, high, given["unit"])
    except InputError:
        return REFUSED
    return {"place": struct.pack(">d", agreed.to_fraction(outcome)).hex()}


def _seat(given: Values) -> Values:
    return {"code": code_of(given)}


def _answer(given: Values) -> Values:
    scalars = [int(one).to_bytes(32, "big") for one in given["scalars"]]
    draws = [scalars[0], bytes.fromhex(given["fresh"]), *scalars[1:]]
    with listed_draws(draws):
        body = answer_of(given, ListedBits(given["words"]))
    (found,) = NodeAnswer.FromString(body).answers
    return (
        {"code": found.refusal.code} if found.refusal.code else {"answer": body.hex()}
    )


def _reply(given: Values) -> Values:
    kinds = ANSWERING if given["answering"] else ARRIVING
    try:
        reply = read_reply(bytes.fromhex(given["body"]), kinds)
        if reply is None:
            return {"again": True}
        if reply.HasField("no_seat"):
            shown = read_no_seat(reply.no_seat, policy_of(given))
            return {"arm": shown.arm_name, "reason": shown.reason}
    except (ProtocolError, RefusalError) as error:
        return {"code": error.code}
    return {}


COMPUTE: dict[str, Callable[[Values], Values]] = {
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
    "seat": _seat,
    "answer": _answer,
    "reply": _reply,
}


def wrong_cases(path: Path) -> tuple[int, list[str]]:
    """Return how many cases a file holds, and those that Python computes otherwise."""
    cases = json.loads(path.read_text())
    compute = COMPUTE[path.stem]
    wrong = []
    for case in cases:
        found = compute(case["in"])
        if found != case["out"]:
            wrong.append(f"{path.stem}: {case['in']}: {case['out']}, here {found}")
    return len(cases), wrong


def main(folder: str) -> int:
    """Check every file of a folder; print how many cases there were, by kind."""
    failed = 0
    for path in sorted(Path(folder).glob("*.json")):
        count, wrong = wrong_cases(path)
        failed += len(wrong)
        print(f"{path.stem}: {count} cases checked by Python, {len(wrong)} differ")
        for line in wrong[:5]:
            print(line[:2000])
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
