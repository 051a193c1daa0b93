"""Every cohort of a run as a row, and whether arms differ in how many people answer.

Arms of one round are asked at the same time. So without an influence of the arm on who
answers, every way to spread a round's losses over its arms is equally likely. Let an
arm have n of the N units of a round, of which L are lost. For any tilt θ the number X
that the arm loses then has, with q = L/N and s = n/N,

    E e^{θX} ≤ min{(1 + q(e^θ−1))ⁿ, (1 + s(e^θ−1))ᴸ, e^{θn}(1 + s(e^{−θ}−1))ᴺ⁻ᴸ}

(Hoeffding 1963). It also holds where one node is lost in several arms at once: losses
are then spread more evenly. So e^{θX} over this bound has a mean of at most one given
all earlier rounds. Its product over the rounds is a supermartingale, and so is the
average over arms and tilts. By Ville's inequality the average ever reaches 1/α with a
chance of at most α, however often somebody looks. So 1 over its largest value is a
p-value for the whole run, and an alarm never goes away.

People on one node are lost together when it vanishes, and people of one cohort when it
is void. So three levels are tested, each in its own unit: cohorts (each attempt
apart), nodes of cohorts with a sum, people on nodes that are in a sum. Of people who
arrive each is a node, and nodes are called seats.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wallflower.protocol.secure_sum.session import Finding
from wallflower.protocol.wire.cohort_pb2 import CohortSpec
from wallflower.strategy.store.entries import SUMMED, VOID, CohortRecord
from wallflower.strategy.store.journal import Journal
from wallflower.strategy.store.seat_register import SeatRegister
from wallflower.strategy.store.seats import SeatedRecord

UNDER_WAY = "under-way"


@dataclass(frozen=True, slots=True)
class CohortRow:
    """One attempt to get one arm's sum.

    Attributes
    ----------
    state : ``summed``, ``void`` or ``invited``; `why` says why it is void.
    invited : people asked, less those whose node refused before anybody saw the arm.
    in_sum : people on the nodes that are in the sum; `answered` of them did.
    losses : people who were asked and are in no sum, by reason.
    seats : of people who arrive, how many could come; 0 where people are known.
    came : of them, how many took a seat and answered, in a sum or not.
    """

    cohort: str
    round: int
    batch: int
    arm: str
    attempt: int
    state: str
    why: str
    invited: int
    returned: int
    answered: int
    nodes: int
    nodes_in_sum: int
    in_sum: int
    honest_floor: int
    quorum: int
    losses: Mapping[str, int]
    findings: tuple[Finding, ...]
    seats: int = 0
    came: int = 0

    @property
    def drawn(self) -> int:
        """People to whom the arm was assigned, whether they saw it or not."""
        return self.invited + self.returned

    @property
    def lost(self) -> int:
        """People who were asked and are in no sum."""
        return self.invited - self.answered


def cohort_rows(journal: Journal) -> Iterable[CohortRow]:
    """Yield every attempt to get one arm's sum, in the order of the record."""
    names = journal.config.experiment.arms
    asked = journal.count_invited()
    returned: dict[str, set[str]] = {}
    for cohort_id, node_id, _ in journal.returned():
        returned.setdefault(cohort_id, set()).add(node_id)
    blame = journal.blame()
    seated = {one.cohort_id: one for one in SeatRegister(journal.database).seated()}
    for cohort in journal.cohorts():
        if (seats := seated.get(cohort.cohort_id)) is not None:
            found = blame.get(cohort.cohort_id, ())
            yield _build_seated_row(cohort, seats, found, names[cohort.arm])
            continue
        nodes = asked.get(cohort.cohort_id, {})
        back = returned.get(cohort.cohort_id, set())
        yield _cohort(cohort, nodes, back, blame.get(cohort.cohort_id, ()), names)


def _build_seated_row(
    cohort: CohortRecord,
    seats: SeatedRecord,
    findings: Sequence[Finding],
    arm: str,
) -> CohortRow:
    """Return a cohort of people who arrived: each is a node of their own."""
    spec, counts = CohortSpec.FromString(cohort.spec), seats.counts
    invited = counts.taken + counts.answered
    answered = 0 if cohort.result is None else cohort.result.survivors
    losses = Counter(cohort.losses)
    losses[cohort.reason or UNDER_WAY] += invited - answered - losses.total()
    return CohortRow(
        cohort=cohort.cohort_id,
        round=cohort.round_number,
        batch=cohort.batch,
        arm=arm,
        attempt=cohort.attempt,
        state=cohort.state,
        why=cohort.reason,
        invited=invited,
        returned=0,
        answered=answered,
        nodes=invited,
        nodes_in_sum=answered,
        in_sum=answered,
        honest_floor=spec.honest_floor,
        quorum=spec.quorum,
        losses=dict(sorted((+losses).items())),
        findings=tuple(findings),
        seats=seats.seats,
        came=counts.answered,
    )


def _cohort(
    cohort: CohortRecord,
    nodes: Mapping[str, int],
    returned: set[str],
    findings: Sequence[Finding],
    names: Sequence[str],
) -> CohortRow:
    spec = CohortSpec.FromString(cohort.spec)
    summed = () if cohort.result is None else cohort.result.nodes
    answered = 0 if cohort.result is None else cohort.result.survivors
    given_back = sum(nodes[node_id] for node_id in returned)
    invited = sum(nodes.values()) - given_back
    losses = Counter(cohort.losses)
    losses[cohort.reason or UNDER_WAY] += invited - answered - losses.total()
    return CohortRow(
        cohort=cohort.cohort_id,
        round=cohort.round_number,
        batch=cohort.batch,
        arm=names[cohort.arm],
        attempt=cohort.attempt,
        state=cohort.state,
        why=cohort.reason,
        invited=invited,
        returned=given_back,
        answered=answered,
        nodes=len(nodes) - len(returned),
        nodes_in_sum=len(summed),
        in_sum=sum(nodes[node_id] for node_id in summed),
        honest_floor=spec.honest_floor,
        quorum=spec.quorum,
        losses=dict(sorted((+losses).items())),
        findings=tuple(findings),
    )


ALARM = 0.001  # a healthy run is ever called unhealthy in less than one of a thousand
# Differences in the logarithm of the odds to be lost: from 1.6 % to a factor of 55.
TILTS = np.array([sign * 2.0**power for power in range(-6, 3) for sign in (1, -1)])
Doubles = NDArray[np.float64]
# Of one arm in one round: units asked, units lost.
Stratum = Mapping[str, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class RateTest:
    """What was compared, and the chance that equal arms ever differ so much.

    `arm` is the one that differs most, with what it lost and what was expected.
    """

    unit: str
    asked: int
    lost: int
    p_value: float
    arm: str | None = None
    arm_lost: int = 0
    expected: float = 0.0


@dataclass(frozen=True, slots=True)
class AnswerRates:
    """The three levels and their joint p-value."""

    tests: tuple[RateTest, ...]

    @property
    def p_value(self) -> float:
        """Of all levels together, by Bonferroni's inequality."""
        return min(
            1.0, len(self.tests) * min((t.p_value for t in self.tests), default=1.0)
        )

    @property
    def differ(self) -> bool:
        """Whether arms lose people at rates that luck does not explain."""
        return self.p_value < ALARM

    @property
    def worst(self) -> RateTest:
        """The level with the smallest p-value."""
        return min(self.tests, key=lambda test: test.p_value)


def answer_rates(cohorts: Iterable[CohortRow], rounds: int, arms: int) -> AnswerRates:
    """Test whether arms differ in how many of their people answer.

    Only the first `rounds` rounds count: in a round under way the cohorts that ended
    first may be those that lost nobody.
    """
    ended = [
        row for row in cohorts if row.round <= rounds and row.state in (SUMMED, VOID)
    ]
    summed = [row for row in ended if row.state == SUMMED]
    return AnswerRates(
        (
            _test("cohorts", ended, arms, lambda row: (1, int(row.state == VOID))),
            _test(
                "seats" if any(row.seats for row in summed) else "nodes",
                summed,
                arms,
                lambda row: (row.nodes, row.nodes - row.nodes_in_sum),
            ),
            _test(
                "people",
                summed,
                arms,
                lambda row: (row.in_sum, row.in_sum - row.answered),
            ),
        )
    )


def homogeneity(unit: str, strata: Sequence[Stratum], arms: int) -> RateTest:
    """Test that in every stratum, in their order, the units lost are spread by chance.

    Examples
    --------
    >>> homogeneity("nodes", [{"a": (40, 0), "b": (40, 30)}], arms=2).p_value < 1e-4
    True
    >>> homogeneity("nodes", [{"a": (10, 5), "b": (10, 5)}], arms=2).p_value
    1.0
    """
    asked = sum(units for stratum in strata for units, _ in stratum.values())
    lost = sum(gone for stratum in strata for _, gone in stratum.values())
    logs: dict[str, Doubles] = {}
    seen: dict[str, tuple[int, float]] = {}  # lost, expected
    largest = 0.0  # of the logarithm of the average
    for stratum in strata:
        in_all = sum(units for units, _ in stratum.values())
        gone_in_all = sum(gone for _, gone in stratum.values())
        if len(stratum) < 2 or not 0 < gone_in_all < in_all:
            continue  # it compares nothing
        for name, (units, gone) in stratum.items():
            factor = TILTS * gone - _log_mgf_bounds(units, gone_in_all, in_all)
            logs[name] = logs.get(name, np.zeros(len(TILTS))) + factor
            before = seen.get(name, (0, 0.0))
            expected = gone_in_all * units / in_all
            seen[name] = before[0] + gone, before[1] + expected
        largest = max(largest, _log_average(list(logs.values()), arms))
    p_value = math.exp(-largest)
    if not logs:
        return RateTest(unit, asked, lost, 1.0)
    worst = max(sorted(logs), key=lambda name: _log_average([logs[name]], 1))
    arm_lost, expected = seen[worst]
    return RateTest(
        unit, asked, lost, p_value, arm=worst, arm_lost=arm_lost, expected=expected
    )


def _log_mgf_bounds(units: int, lost: int, asked: int) -> Doubles:
    """Bound ln E e^{θX} of an arm's losses at every tilt."""
    up, down = np.expm1(TILTS), np.expm1(-TILTS)
    share = units / asked
    by_unit = units * np.log1p(lost / asked * up)
    by_lost = lost * np.log1p(share * up)
    by_kept = TILTS * units + (asked - lost) * np.log1p(share * down)
    bounds = np.minimum(np.minimum(by_unit, by_lost), by_kept)
    return np.asarray(bounds + 1e-12 * (1 + np.abs(bounds)))  # rounding of doubles


def _log_average(logs: Sequence[Doubles], arms: int) -> float:
    """Return ln of the average over arms and tilts; arms never seen count as 1."""
    flat = np.concatenate(logs)
    unseen = max(arms - len(logs), 0) * len(TILTS)
    top = max(float(flat.max()), 0.0)
    total = float(np.exp(flat - top).sum()) + unseen * math.exp(-top)
    return top + math.log(total / (len(flat) + unseen))


def _test(
    unit: str,
    rows: Iterable[CohortRow],
    arms: int,
    count: Callable[[CohortRow], tuple[int, int]],
) -> RateTest:
    """Test one unit; a stratum holds a round's cohorts of one attempt, or its sums."""
    strata: dict[tuple[int, int], dict[str, tuple[int, int]]] = {}
    for row in rows:
        attempt = row.attempt if unit == "cohorts" else 0
        strata.setdefault((row.round, attempt), {})[row.arm] = count(row)
    return homogeneity(unit, [strata[place] for place in sorted(strata)], arms)
