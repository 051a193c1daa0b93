"""Rule 1: who may vanish at which stage; the table docs/figures/dropouts.csv is this.

Nodes vanish just before they would answer a stage, and stay away. `tolerated` is
computed from the sizes that follow from the threat, so the table states a prediction
that is then carried out.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from tests.support.secure_sums import NODE_BACKENDS as BACKENDS
from tests.support.secure_sums import (
    TENTH,
    Enrolment,
    cohort_spec,
    deal_key,
    names,
    open_cohort,
    run_dealing,
)
from wallflower.clients.secure_sum.keyring import ClientKeyring
from wallflower.protocol.secure_sum.context import draw_order
from wallflower.protocol.secure_sum.sealed.sizes import dealing_sizes
from wallflower.protocol.secure_sum.session import SecureSum, Void
from wallflower.protocol.secure_sum.threat import (
    Threat,
    graph_size,
    least_contributors,
)
from wallflower.strategy.secure_sum import ServerKeyring

# The same lines again and again, which others run too: not traced, twice as fast.
pytestmark = pytest.mark.no_cover

NODES = 20
DOCUMENT = Path(__file__).parents[3] / "docs" / "figures" / "dropouts.csv"
CASES = [
    ("secagg-plus", False, ("advertise", "share", "mask", "unmask")),
    ("sealed", False, ("enlist", "deal", "check", "seal", "open")),
    ("secagg-plus", True, ("advertise", "share", "mask", "confirm", "unmask")),
    ("sealed", True, ("enlist", "deal", "check", "seal", "open")),
]
ROWS = [(backend, lying, stage) for backend, lying, stages in CASES for stage in stages]


def tolerated(backend: str, threat: Threat, stage: str) -> int:
    """How many of NODES nodes may vanish at `stage`, whichever they are."""
    least = least_contributors(threat, NODES)
    if backend == "sealed":
        sizes = dealing_sizes(threat, NODES)
        needed = sizes.threshold if stage == "open" else max(least, sizes.threshold)
        return NODES - needed
    if stage == "advertise":
        # The graph is drawn over those who stay, as long as the threat can be met.
        return max(
            gone
            for gone in range(NODES)
            if NODES - gone >= least and _feasible(threat, NODES - gone)
        )
    # A node's t shares lie with its neighbours, never with itself.
    return NODES - max(least, graph_size(threat, NODES).threshold + 1)


def _feasible(threat: Threat, nodes: int) -> bool:
    try:
        graph_size(threat.among(NODES, nodes), nodes)
    except ValueError:
        return False
    return True


@cache
def nobody_drops(backend: str, lying: bool) -> SecureSum | Void:
    return drop(backend, lying, "", 0)


def drop(backend: str, lying: bool, stage: str, count: int) -> SecureSum | Void:
    parties = names(NODES)
    threat = Threat(TENTH, TENTH, malicious_server=lying)
    spec = cohort_spec(backend, parties, threat=threat, quorum=3)
    enrolment = ENROLMENT if lying else None
    rings: dict[str, ClientKeyring] = {}
    server_ring = ServerKeyring(spec.run_id)
    dealing = deal_key(spec.run_id, threat, parties, rings, server_ring, enrolment)
    # In the order of the draw: those who vanish are then the dealers first.
    order = draw_order(dealing.server.context, list(parties))  # type: ignore[attr-defined]
    gone = set(order[:count])
    reached = False

    def gate(current: str, party: str) -> bool:
        nonlocal reached
        reached = reached or current == stage
        return not (reached and party in gone)

    if backend == "sealed":
        dealt = run_dealing(dealing, gate)
        if isinstance(dealt, Void):
            return dealt
    cohort = open_cohort(
        spec,
        parties,
        enrolment=enrolment,
        keyrings=rings,
        server_keyring=server_ring,
    )
    outcome = cohort.run(up=gate)
    if isinstance(outcome, SecureSum):
        assert outcome.total == cohort.expected(outcome.survivors)
        assert outcome.users == len(outcome.survivors)
    return outcome


ENROLMENT = Enrolment()


def row(backend: str, lying: bool, stage: str) -> str:
    most = tolerated(backend, Threat(TENTH, TENTH, malicious_server=lying), stage)
    cells = []
    for count in (0, 1, most, most + 1):
        outcome = (
            drop(backend, lying, stage, count)
            if count
            else nobody_drops(backend, lying)
        )
        if isinstance(outcome, SecureSum):
            cells.append(f"sum over {len(outcome.survivors)}")
        else:
            cells.append(f"no sum: {outcome.code}")
        expected = SecureSum if count <= most else Void
        assert isinstance(outcome, expected), (backend, stage, count, outcome)
    server = "malicious" if lying else "semi-honest"
    return ",".join((backend, server, stage, str(most), *cells))


@pytest.mark.slow  # hundreds of secure sums
@pytest.mark.parametrize(("backend", "lying", "stage"), ROWS)
def test_the_documented_table_is_what_happens(
    backend: str, lying: bool, stage: str
) -> None:
    measured = row(backend, lying, stage)
    assert measured in DOCUMENT.read_text(encoding="utf-8").splitlines(), measured


@pytest.mark.parametrize("backend", BACKENDS)
def test_below_the_quorum_there_is_no_sum_however_many_nodes_stay(backend: str) -> None:
    parties = {**names(8), "node-00000": 100}
    cohort = open_cohort(cohort_spec(backend, parties, quorum=50), parties)
    outcome = cohort.run(up=lambda stage, party: party != "node-00000")
    assert isinstance(outcome, Void)
    assert "quorum" in outcome.detail


@pytest.mark.parametrize(
    ("backend", "stage"),
    [
        ("secagg-plus", "share"),
        ("secagg-plus", "mask"),
        ("secagg-plus", "unmask"),
        ("sealed", "seal"),
        ("sealed", "open"),
    ],
)
def test_a_tenth_of_a_hundred_nodes_may_vanish_anywhere(
    backend: str, stage: str
) -> None:
    """A drawn committee and a sparse graph, not only complete ones."""
    parties = names(100)
    cohort = open_cohort(cohort_spec(backend, parties, quorum=3), parties)
    gone = set(list(parties)[5::10])
    reached = False

    def gate(current: str, party: str) -> bool:
        nonlocal reached
        reached = reached or current == stage
        return not (reached and party in gone)

    outcome = cohort.run(up=gate)
    assert reached
    assert isinstance(outcome, SecureSum), outcome
    assert outcome.total == cohort.expected(outcome.survivors)
