"""Do people answer equally often whatever they were shown? An exact test.

Arms of one round are asked at the same time, so without an influence of the arm on who
answers every way to spread a round's losses over its arms is equally likely: an arm's
losses are hypergeometric, those of several rounds their convolution. That is tested for
each arm on both sides, and Bonferroni's inequality joins the arms: the p-value is never
too small, whatever the sizes. People on one node are lost together when it vanishes and
people of one cohort when it is void, so three levels are looked at, each in its own
unit: cohorts, nodes of cohorts with a sum, people on nodes that are in a sum.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from wallflower.results.history import CohortRow
from wallflower.strategy.record.entries import SUMMED, VOID

ALARM = 0.001  # a healthy run is called unhealthy in less than one of a thousand
# Of one arm in one round: units asked, units lost.
Stratum = Mapping[str, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class RateTest:
    """What was compared, and the chance of such a difference between equal arms.

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


def answer_rates(cohorts: Iterable[CohortRow]) -> AnswerRates:
    """Test whether arms differ in how many of their people answer."""
    ended = [row for row in cohorts if row.state in (SUMMED, VOID)]
    summed = [row for row in ended if row.state == SUMMED]
    return AnswerRates(
        (
            _test("cohorts", ended, lambda row: (1, int(row.state == VOID))),
            _test("nodes", summed, lambda row: (row.nodes, _missing_nodes(row))),
            _test(
                "people", summed, lambda row: (row.in_sum, row.in_sum - row.answered)
            ),
        )
    )


def homogeneity(unit: str, strata: Sequence[Stratum]) -> RateTest:
    """Test that within every stratum the units lost are spread by chance.

    Examples
    --------
    >>> homogeneity("nodes", [{"a": (10, 0), "b": (10, 10)}]).p_value < 1e-4
    True
    >>> homogeneity("nodes", [{"a": (10, 5), "b": (10, 5)}]).p_value
    1.0
    """
    asked = sum(units for stratum in strata for units, _ in stratum.values())
    lost = sum(gone for stratum in strata for _, gone in stratum.values())
    # A stratum of one arm, or where nobody or everybody is lost, compares nothing.
    telling = [s for s in strata if len(s) > 1 and _varies(s)]
    names = sorted({name for stratum in telling for name in stratum})
    if not names:
        return RateTest(unit, asked, lost, 1.0)
    found = {name: _of_arm(name, telling) for name in names}
    worst = min(names, key=lambda name: found[name][0])
    p_value, arm_lost, expected = found[worst]
    return RateTest(
        unit,
        asked,
        lost,
        p_value=min(1.0, len(names) * p_value),
        arm=worst,
        arm_lost=arm_lost,
        expected=expected,
    )


def _missing_nodes(row: CohortRow) -> int:
    return row.nodes - row.nodes_in_sum


def _test(
    unit: str,
    rows: Iterable[CohortRow],
    counted: Callable[[CohortRow], tuple[int, int]],
) -> RateTest:
    strata: dict[int, dict[str, tuple[int, int]]] = {}
    for row in rows:
        before = strata.setdefault(row.round, {}).get(row.arm, (0, 0))
        units, gone = counted(row)
        strata[row.round][row.arm] = (before[0] + units, before[1] + gone)
    return homogeneity(unit, list(strata.values()))


def _varies(stratum: Stratum) -> bool:
    asked = sum(units for units, _ in stratum.values())
    return 0 < sum(gone for _, gone in stratum.values()) < asked


def _of_arm(name: str, strata: Sequence[Stratum]) -> tuple[float, int, float]:
    """Two-sided p-value of one arm's losses, what it lost, what was expected."""
    law, seen, expected = np.ones(1), 0, 0.0
    for stratum in strata:
        if name not in stratum:
            continue
        units, gone = stratum[name]
        asked = sum(one for one, _ in stratum.values())
        lost = sum(one for _, one in stratum.values())
        chances = stats.hypergeom(asked, lost, units).pmf(np.arange(lost + 1))
        law = np.convolve(law, chances)
        seen += gone
        expected += lost * units / asked
    below, above = math.fsum(law[: seen + 1]), math.fsum(law[seen:])
    return min(1.0, 2 * min(below, above)), seen, expected
