"""The sum is exact: every small cohort, large ones, all kinds of moduli."""

from __future__ import annotations

import itertools
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.secure_sums import (
    MOST_SEALED,
    Enrolment,
    cohort_spec,
    names,
    open_cohort,
)
from tests.support.secure_sums import NODE_BACKENDS as BACKENDS
from wallflower.clients.secure_sum.keyring import ClientKeyring
from wallflower.protocol.secure_sum.session import SecureSum
from wallflower.protocol.secure_sum.threat import Threat
from wallflower.protocol.wire.cohort_pb2 import CohortSpec

# The same lines again and again, which others run too: not traced, twice as fast.
pytestmark = pytest.mark.no_cover

# Small, prime, composite, a power of two, near 2^62.
MODULI = [67, 1009, 1000, 2**16, 2**31 - 1, 10**12, 2**61 - 1, 2**62 - 57]
RINGS: dict[str, ClientKeyring] = {}
COUNTER = itertools.count()
# The mildest threats still draw a committee and a graph; large cohorts stay affordable.
MILD = Threat(Fraction(1, 100), Fraction(1, 100))


def largest_value(spec: CohortSpec, users: int) -> int:
    """The most a node may send; a sealed sum is no residue."""
    return users * MOST_SEALED if spec.backend == "sealed" else spec.modulus - 1


def value_of(most: int) -> st.SearchStrategy[int]:
    return st.one_of(st.sampled_from([0, 1, most]), st.integers(0, most))


def check_sum(
    backend: str,
    nodes: int,
    modulus: int,
    *,
    threat: Threat | None = None,
    reuse: bool = False,
) -> None:
    parties = names(nodes)
    spec = cohort_spec(
        backend,
        parties,
        modulus=modulus,
        threat=threat,
        cohort_id=f"cohort-{next(COUNTER)}",
    )
    most = largest_value(spec, 1)
    values = {p: (i * i * 7919 - i) % (most + 1) for i, p in enumerate(parties)}
    values["node-00001"] = most
    cohort = open_cohort(spec, parties, values, keyrings=RINGS if reuse else None)
    outcome = cohort.run()
    assert isinstance(outcome, SecureSum), outcome
    assert outcome.survivors == tuple(parties)
    assert outcome.total == cohort.expected(outcome.survivors)
    assert outcome.users == nodes


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("nodes", [*range(2, 18), 23, 31, 32, 33, 42, 53, 63, 64])
def test_cohorts_of_2_to_64_nodes_sum_exactly(backend: str, nodes: int) -> None:
    """Each size up to 17, some above; `make soak-secagg` takes all of them."""
    check_sum(backend, nodes, MODULI[nodes % len(MODULI)], reuse=True)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("modulus", MODULI)
def test_every_kind_of_modulus_sums_exactly(backend: str, modulus: int) -> None:
    check_sum(backend, 9, modulus, reuse=True)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("modulus", [1000, 2**62 - 57])
def test_128_nodes_sum_exactly(backend: str, modulus: int) -> None:
    check_sum(backend, 128, modulus, threat=MILD, reuse=True)


def test_1024_nodes_sum_exactly_with_a_committee() -> None:
    check_sum("sealed", 1024, 10**7, threat=MILD)


@pytest.mark.soak
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("nodes", [128, 1024, 8192])
@pytest.mark.parametrize("modulus", [10**6, 2**62 - 57])
def test_large_cohorts_sum_exactly(backend: str, nodes: int, modulus: int) -> None:
    """Minutes: 8,192 nodes at γ = δ = 0.1 agree on up to a million keys."""
    check_sum(backend, nodes, modulus)


@pytest.mark.soak
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("nodes", range(2, 65))
def test_every_small_cohort_with_every_modulus(backend: str, nodes: int) -> None:
    """Minutes: 63 sizes × 8 moduli."""
    for modulus in MODULI:
        check_sum(backend, nodes, modulus, reuse=True)


@pytest.mark.parametrize("backend", BACKENDS)
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_any_values_and_any_survivors_sum_exactly(
    backend: str, data: st.DataObject
) -> None:
    users = data.draw(st.lists(st.integers(1, 50), min_size=4, max_size=9))
    parties = dict(zip(names(len(users)), users, strict=True))
    spec = cohort_spec(
        backend,
        parties,
        modulus=data.draw(st.integers(64, 2**62 - 57)),
        quorum=2,
        cohort_id=str(data.draw(st.integers(0, 2**40))),
    )
    values = {
        party: data.draw(value_of(largest_value(spec, users)))
        for party, users in parties.items()
    }
    stage = data.draw(st.sampled_from(["share", "mask", "seal"]))
    gone = data.draw(st.sets(st.sampled_from(sorted(parties)), max_size=1))
    cohort = open_cohort(spec, parties, values)
    outcome = cohort.run(up=lambda s, party: not (s == stage and party in gone))
    assert isinstance(outcome, SecureSum), outcome
    assert outcome.total == cohort.expected(outcome.survivors)
    assert outcome.users == sum(parties[party] for party in outcome.survivors)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("extra", [0, 65])
def test_enrolled_nodes_sum_against_a_malicious_server(
    backend: str, extra: int
) -> None:
    parties = {"a": 3, "b": 1, "c": 5, "d": 2, "e": 4} | names(extra)
    threat = Threat(Fraction(1, 20), Fraction(1, 20), malicious_server=True)
    spec = cohort_spec(backend, parties, threat=threat)
    cohort = open_cohort(spec, parties, enrolment=Enrolment())
    outcome = cohort.run()
    assert isinstance(outcome, SecureSum), outcome
    assert outcome.total == cohort.expected(outcome.survivors)
    assert outcome.users == 15 + extra
