"""Whom a secure sum withstands, and the sizes that follow.

The caller states the threat: the fraction γ of nodes that collude with the server, the
fraction δ that vanish, and whether the server keeps to the protocol. The committee
(c, t) or the graph (k, t) is computed from it by exact tails; nobody types sizes in.

A malicious server also picks the cohort's id, and may try many to get a committee or
graph that suits it. Both are drawn by hash from the roster and the id, so each try is
one hash evaluation; sizes for a malicious server hold after 2^`GRINDING_BITS` tries.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache

from wallflower.protocol.errors import InputError
from wallflower.protocol.numbers import exact, round_up, whole
from wallflower.protocol.secure_sum.backends import SEALED, SHUFFLE
from wallflower.protocol.secure_sum.tails import Draw, HalfWindows
from wallflower.protocol.wire import cohort_pb2

GRINDING_BITS = 80
COMPLETE_UP_TO = 64  # nodes: below, everyone shares with everyone and nothing is drawn
LARGEST_COHORT = 2**20
_LARGEST_DRAW = 2048  # helpers; a larger committee would cost more than it protects
_ONE = Fraction(1)


@dataclass(frozen=True, slots=True)
class Threat:
    """γ, δ, the kind of server, and how sure to be.

    Attributes
    ----------
    corrupt : γ, largest fraction of a cohort's nodes that collude with the server.
    dropout : δ, largest fraction of a cohort's nodes that vanish.
    malicious_server : the server may lie; False: it is curious but honest.
    privacy_bits : σ, privacy fails with probability at most 2^-σ.
    correctness_bits : η, dropouts within δ void a cohort with probability ≤ 2^-η.
    grinding_bits : log2 of the cohort ids a malicious server may have tried.
    """

    corrupt: Fraction
    dropout: Fraction
    malicious_server: bool = False
    privacy_bits: int = 40
    correctness_bits: int = 30
    grinding_bits: int = GRINDING_BITS

    def __post_init__(self) -> None:
        for name in ("corrupt", "dropout"):
            value = exact(name, getattr(self, name))
            if not 0 <= value < 1:
                raise InputError(name, value, "a fraction of nodes from 0 to below 1")
            object.__setattr__(self, name, value)
        for name in ("privacy_bits", "correctness_bits"):
            whole(name, getattr(self, name), at_least=1, at_most=128)
        whole("grinding_bits", self.grinding_bits, at_least=0, at_most=128)

    @classmethod
    def from_wire(cls, message: cohort_pb2.Threat) -> Threat:
        """Read the public description of a cohort's threat."""
        corrupt, dropout = message.corrupt, message.dropout
        # An absent message means none; a present one must be a fraction.
        return _from_wire(
            corrupt.numerator,
            corrupt.denominator if message.HasField("corrupt") else 1,
            dropout.numerator,
            dropout.denominator if message.HasField("dropout") else 1,
            message.malicious_server,
        )

    def to_wire(self) -> cohort_pb2.Threat:
        """Write the public description of a cohort's threat."""
        return cohort_pb2.Threat(
            corrupt=cohort_pb2.Rational(
                numerator=self.corrupt.numerator, denominator=self.corrupt.denominator
            ),
            dropout=cohort_pb2.Rational(
                numerator=self.dropout.numerator, denominator=self.dropout.denominator
            ),
            malicious_server=self.malicious_server,
        )

    def corrupt_nodes(self, nodes: int) -> int:
        """⌈γn⌉: how many of n nodes may collude."""
        return math.ceil(self.corrupt * nodes)

    def dropped_nodes(self, nodes: int) -> int:
        """⌊δn⌋: how many of n nodes may vanish; drawn sizes allow for ⌈δn⌉."""
        return math.floor(self.dropout * nodes)

    def among(self, invited: int, left: int) -> Threat:
        """Say what the threat is among `left` of `invited` nodes.

        Those who vanished may all be honest, so as many colluders are left as there
        were: their fraction grows. Raises InputError where nobody honest is left.
        """
        if left >= invited:
            return self
        return replace(self, corrupt=Fraction(self.corrupt_nodes(invited), left))

    @property
    def drawn_privacy_bits(self) -> int:
        """σ, plus what a malicious server gains by trying many cohort ids."""
        return self.privacy_bits + (self.grinding_bits if self.malicious_server else 0)


@lru_cache(maxsize=256)
def _from_wire(
    corrupt: int, corrupt_of: int, dropout: int, dropout_of: int, malicious: bool
) -> Threat:
    for name, top, bottom in (
        ("corrupt", corrupt, corrupt_of),
        ("dropout", dropout, dropout_of),
    ):
        if bottom == 0:
            raise InputError(name, f"{top}/0", "a proper fraction")
    return Threat(
        Fraction(corrupt, corrupt_of), Fraction(dropout, dropout_of), malicious
    )


@dataclass(frozen=True, slots=True)
class Sizes:
    """`helpers` hold shares (committee c, or neighbours k); `threshold` of them, t."""

    helpers: int
    threshold: int


def least_contributors(threat: Threat, nodes: int) -> int:
    """Nodes that must be in a sum: two honest ones, and all where n ≤ 3."""
    return nodes if nodes <= 3 else min(nodes, threat.corrupt_nodes(nodes) + 2)


def most_corrupt_users(parties: Mapping[str, int], corrupt: Fraction) -> int:
    """Users that the ⌈γn⌉ largest nodes hold: what colluders may claim at most."""
    count = math.ceil(corrupt * len(parties))
    return sum(sorted(parties.values(), reverse=True)[:count])


def quorum_for(honest_floor: int, parties: Mapping[str, int], corrupt: Fraction) -> int:
    """Users that must be in a sum so that `honest_floor` honest ones surely are."""
    return honest_floor + most_corrupt_users(parties, corrupt)


@lru_cache(maxsize=4096)
def committee_size(threat: Threat, nodes: int | None) -> Sizes:
    """Smallest committee c and its threshold t for a cohort of `nodes` nodes.

    P[Hyp(n, ⌈γn⌉, c) ≥ t] ≤ 2^-σ (fewer than t colluders), and
    P[Hyp(n, n−⌈δn⌉, c) < t] ≤ 2^-η (t members stay); a malicious server adds
    2t > c + colluders, so that two different closed sets cannot both reach t answers.
    With `nodes` None the population is unbounded (binomial). Up to 64 nodes, and where
    no smaller committee will do, the committee is the cohort.
    """
    if nodes is not None:
        _check_cohort(nodes)
        if nodes <= COMPLETE_UP_TO:
            return _whole_cohort(threat, nodes, helpers=nodes)
    sizes = _smallest(threat, nodes, graph=False)
    if sizes is not None:
        return sizes
    if nodes is None:
        raise _infeasible(threat, None, graph=False)
    return _whole_cohort(threat, nodes, helpers=nodes)


@lru_cache(maxsize=4096)
def graph_size(threat: Threat, nodes: int) -> Sizes:
    """Degree k and threshold t of the secagg-plus graph (Bell et al. 2020).

    Up to 64 nodes the graph is complete; above see `sparse_graph_size`, and complete
    again where no sparse graph will do.
    """
    _check_cohort(nodes)
    if nodes > COMPLETE_UP_TO:
        sizes = sparse_graph_size(threat, nodes)
        if sizes is not None:
            return sizes
    return _whole_cohort(threat, nodes, helpers=nodes - 1)


@lru_cache(maxsize=4096)
def sparse_graph_size(threat: Threat, nodes: int) -> Sizes | None:
    """Smallest even k < n − 1 and t, or None where only the complete graph will do.

    n·P[Hyp(n−1, ⌈γn⌉, k) ≥ t] ≤ 2^-(σ+1): no node's neighbours can be outvoted;
    n(n−1)/2·P[k given nodes ⊂ colluding ∪ gone] ≤ 2^-(σ+1): the honest graph is
    connected; n·P[Hyp(n−1, n−⌈δn⌉, k) < t] ≤ 2^-η: t neighbours stay. A malicious
    server adds t > (k + colluders)/2. It also chooses who seems to vanish: in place of
    the random connection, n(n−1)/2·P[two half-windows hold t − k/2 colluders each]
    ≤ 2^-(σ+1), see `cuts`.
    """
    return _smallest(threat, nodes, graph=True)


def helpers_are_drawn(backend: str, threat: Threat, nodes: int) -> bool:
    """Return whether who holds shares is drawn by lot, not simply everybody."""
    if nodes <= COMPLETE_UP_TO or backend == SHUFFLE:
        return False
    if backend == SEALED:
        return committee_size(threat, nodes).helpers < nodes
    return graph_size(threat, nodes).helpers < nodes - 1


def _smallest(threat: Threat, nodes: int | None, *, graph: bool) -> Sizes | None:
    """Scan sizes upwards; the tests of each size are exact, so the first is least."""
    limit = _LARGEST_DRAW if nodes is None else min(nodes - 1, _LARGEST_DRAW)
    for helpers in range(2, limit, 2 if graph else 1):
        sizes = _at_size(threat, nodes, helpers, graph=graph)
        if sizes is not None:
            return sizes
    return None


def _at_size(
    threat: Threat, nodes: int | None, helpers: int, *, graph: bool
) -> Sizes | None:
    bits = threat.drawn_privacy_bits + (1 if graph else 0)
    population: int | None
    colluding: int | Fraction
    staying: int | Fraction
    if nodes is None:
        population, factor = None, _ONE
        colluding, staying = threat.corrupt, 1 - threat.dropout
    else:
        population = nodes - 1 if graph else nodes
        factor = Fraction(nodes) if graph else _ONE
        colluding = min(threat.corrupt_nodes(nodes), population)
        staying = min(nodes - math.ceil(threat.dropout * nodes), population)
        if graph and not _stays_connected(threat, nodes, helpers, bits):
            return None
    draw = Draw(population, colluding, helpers)
    safe = draw.smallest_safe_threshold(factor, bits)
    threshold = max(2, safe)
    if threat.malicious_server:
        threshold = max(threshold, (helpers + safe - 1) // 2 + 1)
        if graph and nodes is not None:
            windows = HalfWindows(nodes, threat.corrupt_nodes(nodes), helpers)
            while not windows.rarely_hold(threshold - helpers // 2, bits):
                threshold += 1
    kept = Draw(population, staying, helpers)
    if not kept.rarely_below(threshold, factor, threat.correctness_bits):
        return None
    return Sizes(helpers, threshold)


def _stays_connected(threat: Threat, nodes: int, degree: int, bits: int) -> bool:
    if threat.malicious_server:
        return True  # a cut is bounded with the threshold, not by random dropouts
    lost = math.ceil((threat.corrupt + threat.dropout) * nodes)
    if lost < degree:
        return True
    pairs = Fraction(nodes * (nodes - 1), 2)
    draw = Draw(nodes - 1, min(lost, nodes - 1), degree)
    return draw.rarely_all(pairs, bits)


def _whole_cohort(threat: Threat, nodes: int, *, helpers: int) -> Sizes:
    """Everybody helps: nothing is drawn, so colluders are counted, not bounded.

    Among a node's n − 1 neighbours at most min(⌈γn⌉, n − 1) collude. Cohorts of two
    and three nodes tolerate no dropout: a sum over one or two nodes is no sum.
    """
    if nodes <= 3:
        return Sizes(helpers, helpers)
    colluding = min(threat.corrupt_nodes(nodes), helpers)
    threshold = max(2, colluding + 1)
    if threat.malicious_server:
        threshold = max(threshold, (helpers + colluding) // 2 + 1)
    if nodes > _LARGEST_DRAW or threshold > helpers - threat.dropped_nodes(nodes):
        raise _infeasible(threat, nodes, graph=helpers < nodes)
    return Sizes(helpers, threshold)


def _check_cohort(nodes: int) -> None:
    if not 2 <= nodes <= LARGEST_COHORT:
        raise InputError(
            "nodes of a cohort", nodes, f"2 to {LARGEST_COHORT}; nobody sums alone"
        )


def _infeasible(threat: Threat, nodes: int | None, *, graph: bool) -> InputError:
    """Name the nearest threat that can be met: fewer dropouts, else fewer colluders."""
    for name in ("dropout", "corrupt"):
        nearest = _nearest(threat, nodes, name, graph=graph)
        if nearest is not None:
            break
    else:
        name, nearest = "dropout", Fraction(0)
    server = "malicious" if threat.malicious_server else "semi-honest"
    where = "any number of nodes" if nodes is None else f"{nodes} nodes"
    return InputError(
        "threat",
        f"corrupt {float(threat.corrupt):g}, dropout {float(threat.dropout):g}, "
        f"{server} server, {where}: no committee or graph meets it",
        f"nearest feasible: {name} at most {_floor_text(nearest)}",
    )


def _nearest(
    threat: Threat, nodes: int | None, name: str, *, graph: bool
) -> Fraction | None:
    """Largest smaller value of one field that is feasible, in steps of a node or 1%."""
    steps = 100 if nodes is None or nodes > 1024 else nodes
    current: Fraction = getattr(threat, name)
    low, high = -1, math.floor(current * steps)
    while low + 1 < high:
        middle = (low + high) // 2
        milder = (
            replace(threat, dropout=Fraction(middle, steps))
            if name == "dropout"
            else replace(threat, corrupt=Fraction(middle, steps))
        )
        if _feasible(milder, nodes, graph=graph):
            low = middle
        else:
            high = middle
    return None if low < 0 else Fraction(low, steps)


def _feasible(threat: Threat, nodes: int | None, *, graph: bool) -> bool:
    if nodes is None or nodes > _LARGEST_DRAW:
        return _smallest(threat, nodes, graph=graph) is not None
    helpers = nodes - 1 if graph else nodes
    colluding = min(threat.corrupt_nodes(nodes), helpers)
    threshold = max(2, colluding + 1)
    if threat.malicious_server:
        threshold = max(threshold, (helpers + colluding) // 2 + 1)
    return threshold <= helpers - threat.dropped_nodes(nodes)


def _floor_text(value: Fraction) -> str:
    return round_up(math.floor(value * 10000) / 10000)
