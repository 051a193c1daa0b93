"""How many nodes must be in a shuffled batch, checked on every possible set."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest

from wallflower.protocol.noise.radix import distance_bits
from wallflower.protocol.secure_sum.backends import SHUFFLE
from wallflower.protocol.secure_sum.shuffle.mixing import shares_for
from wallflower.protocol.secure_sum.shuffle.plan import ShufflePlan
from wallflower.protocol.secure_sum.threat import Threat, least_contributors
from wallflower.protocol.wire.cohort_pb2 import CohortSpec, Rational


def plan(nodes: int, corrupt: Fraction, dropout: Fraction) -> ShufflePlan:
    spec = CohortSpec(
        backend=SHUFFLE,
        mechanism="mixed-dp",
        modulus=1024,
        cohort_size=nodes,
        epsilon=Rational(numerator=1, denominator=1),
        threat=Threat(corrupt, dropout).to_wire(),
    )
    return ShufflePlan.of(spec, nodes)


@pytest.mark.parametrize("nodes", [4, 7, 10, 25, 64])
@pytest.mark.parametrize("corrupt", ["0", "1/10", "1/3"])
@pytest.mark.parametrize("dropout", ["0", "1/10", "1/4"])
def test_whoever_is_released_has_enough_honest_mixers(
    nodes: int, corrupt: str, dropout: str
) -> None:
    found = plan(nodes, Fraction(corrupt), Fraction(dropout))
    colluding = math.ceil(Fraction(corrupt) * nodes)
    gone = math.floor(Fraction(dropout) * nodes)
    # The fewest honest nodes in a shuffled batch of `least`: all colluders are in it.
    honest = found.least - colluding
    assert honest >= max(2, nodes - colluding - gone)
    # Those who vanish within what is stated are not needed.
    threat = Threat(Fraction(corrupt), Fraction(dropout))
    needed = max(nodes - gone, min(nodes, 2 + colluding))
    assert found.least == max(needed, least_contributors(threat, nodes))
    bits = distance_bits(Fraction(1))
    assert found.messages == shares_for(honest, 1024, bits)
