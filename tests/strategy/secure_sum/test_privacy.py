"""Rule 7: what t − 1 members and the server know together says nothing about a user.

Exact enumeration over all of a dealer's randomness in small fields, through the very
functions the machines use; and χ² for what a secagg-plus server sees of one node.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict

import numpy as np
import pytest
from scipy import stats

from tests.support.secure_sums import Cohort, asks, cohort_spec, names, open_cohort
from wallflower.protocol.secure_sum.context import unwrap
from wallflower.protocol.secure_sum.secret_shares import evaluate
from wallflower.protocol.wire.secure_sum_pb2 import MaskAnswer

View = tuple[tuple[int, ...], ...]


def views(
    modulus: int, members: int, threshold: int, honest: int, corrupt: tuple[int, ...]
) -> dict[tuple[int, ...], Counter[View]]:
    """Distribution of (server's view, corrupt members' shares) for every input.

    Server: the sums of all members. Corrupt members: their shares of every honest
    user. Seals of the other members are opaque to both. The corrupt nodes' own inputs
    are known to them, so only honest ones matter.
    """
    degree = threshold - 1
    coefficients = np.array(
        list(itertools.product(range(modulus), repeat=degree)), dtype=np.uint64
    ).T.reshape(degree, -1)
    columns = coefficients.shape[1]
    shares = {
        value: evaluate(
            np.full(columns, value, dtype=np.uint64), coefficients, members, modulus
        )
        for value in range(modulus)
    }
    result: dict[tuple[int, ...], Counter[View]] = {}
    for inputs in itertools.product(range(modulus), repeat=honest):
        seen: Counter[View] = Counter()
        for choice in itertools.product(range(columns), repeat=honest):
            rows = [
                shares[value][:, pick]
                for value, pick in zip(inputs, choice, strict=True)
            ]
            sums = tuple(int(x) % modulus for x in np.sum(rows, axis=0))
            known = tuple(tuple(int(row[index]) for index in corrupt) for row in rows)
            seen[(sums, *known)] += 1
        result[inputs] = seen
    return result


@pytest.mark.parametrize(
    ("modulus", "members", "threshold", "honest", "corrupt"),
    [
        (5, 4, 2, 3, (0,)),
        (5, 4, 2, 3, (2,)),
        (5, 4, 3, 2, (0, 1)),
        (5, 4, 3, 2, (1, 3)),
        (7, 3, 2, 2, (1,)),
    ],
)
def test_every_value_of_a_user_is_equally_likely_to_t_minus_1_members_and_the_server(
    modulus: int, members: int, threshold: int, honest: int, corrupt: tuple[int, ...]
) -> None:
    by_sum: dict[int, list[Counter[View]]] = defaultdict(list)
    found = views(modulus, members, threshold, honest, corrupt)
    for inputs, view in found.items():
        by_sum[sum(inputs) % modulus].append(view)
    for alike in by_sum.values():
        # Inputs of one sum look exactly alike, so the view tells the sum and no more:
        # given the view, each value of a user occurs for equally many inputs.
        assert all(view == alike[0] for view in alike)
    totals = [set(group[0]) for group in by_sum.values()]
    assert all(not (a & b) for a, b in itertools.combinations(totals, 2))


def test_t_members_together_with_the_server_do_learn_a_value() -> None:
    """The enumeration can tell: with t corrupt members inputs no longer look alike."""
    found = views(5, 4, 2, 2, (0, 1))
    assert found[0, 3] != found[1, 2]


def masked_value(cohort: Cohort, party: str) -> int:
    ask = asks(cohort, "mask")
    answer = cohort.answer(party, ask.messages[party])
    return MaskAnswer.FromString(unwrap(answer).payload).masked


@pytest.mark.parametrize("modulus", [6, 8])
def test_masked_values_are_uniform_whatever_the_value(modulus: int) -> None:
    """χ², false-alarm rate 1e-6 each; the randomness is the system's."""
    parties = names(2)
    for value in (0, modulus - 1):
        counts = [0] * modulus
        for index in range(240):
            spec = cohort_spec(
                "secagg-plus", parties, modulus=modulus, cohort_id=f"c{index}"
            )
            cohort = open_cohort(spec, parties, dict.fromkeys(parties, value))
            counts[masked_value(cohort, "node-00000")] += 1
        assert stats.chisquare(counts).pvalue > 1e-6
