"""Users against lift: what an experiment typically takes, over a grid of settings.

Base rates are means in the unit of the outcomes, and a lift is relative to them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from wallflower.output import page, print_json, print_table, print_text
from wallflower.planning.future import LONGEST, RUNS, typical_users
from wallflower.planning.request import PlanRequest
from wallflower.planning.units import describe_mean, lowest_lifted, to_part
from wallflower.protocol.errors import InputError
from wallflower.protocol.numbers import counted, exact, positive
from wallflower.protocol.rewards.reward_range import DEFAULT_RANGE, RewardRange

EPSILONS = (Fraction(1, 10), Fraction(1), Fraction(10))
BASE_RATES = (Fraction(1, 100), Fraction(1, 20), Fraction(1, 5))
LIFTS = (Fraction(1), Fraction(1, 2), Fraction(1, 5), Fraction(1, 10))


@dataclass(frozen=True, slots=True)
class Grid:
    """Which settings are compared; a lift is relative to the base rate.

    Base rates are in the unit of the outcomes `measured`.
    """

    epsilons: tuple[Fraction, ...] = EPSILONS
    base_rates: tuple[Fraction, ...] = BASE_RATES
    lifts: tuple[Fraction, ...] = LIFTS
    measured: RewardRange = DEFAULT_RANGE

    def __post_init__(self) -> None:
        low, high = lowest_lifted(self.measured), self.measured.high
        for rate in self.base_rates:
            if not low < rate < high:
                allowed = self.measured.with_unit(f"between {low} and {high}")
                raise InputError("base-rate", rate, allowed)
            most = high / rate - 1
            for lift in self.lifts:
                if not 0 < lift <= most:
                    where = self.measured.with_unit(f"base rate {rate}")
                    allowed = f"above 0, and at most {most} at {where}"
                    raise InputError("lift", lift, allowed)

    @classmethod
    def read(
        cls,
        epsilon: str | None,
        base_rate: str | None,
        lift: Sequence[str],
        own_epsilon: Fraction | None,
        *,
        measured: RewardRange = DEFAULT_RANGE,
    ) -> Grid:
        """Read options, numbers separated by commas; those left out are usual.

        `own_epsilon` is the one of an experiment's file, which joins the usual ones.
        Usual base rates are parts of the range, as far as it lies above 0.
        """
        usual = EPSILONS if own_epsilon is None else {*EPSILONS, own_epsilon}
        epsilons = tuple(sorted(usual))
        if epsilon is not None:
            epsilons = tuple(positive("epsilon", text) for text in epsilon.split(","))
        low, high = lowest_lifted(measured), measured.high
        rates = tuple(low + part * (high - low) for part in BASE_RATES)
        if base_rate is not None:
            rates = tuple(exact("base-rate", text) for text in base_rate.split(","))
        lifts = tuple(exact("lift", part) for text in lift for part in text.split(","))
        if not lifts:
            lifts = tuple(x for x in LIFTS if (1 + x) * max(rates) <= high) or LIFTS
        return cls(epsilons, rates, lifts, measured)

    @property
    def size(self) -> int:
        """How many cells it has."""
        return len(self.epsilons) * len(self.base_rates) * len(self.lifts)


@dataclass(frozen=True, slots=True)
class PowerCell:
    """Mean users until one arm is left, which leads all others' rate by a lift.

    None where 100 times the horizon did not decide every simulated experiment.
    """

    epsilon: Fraction
    base_rate: Fraction
    lift: Fraction
    users: int | None


def power_cells(request: PlanRequest, grid: Grid) -> Iterator[PowerCell]:
    """Simulate cell after cell, exactly."""
    for epsilon in grid.epsilons:
        policy = dataclasses.replace(request, epsilon=epsilon).policy()
        for rate in grid.base_rates:
            for lift in grid.lifts:
                part = to_part(rate, grid.measured)
                gap = to_part(rate * (1 + lift), grid.measured) - part
                users = typical_users(policy, part, gap)
                yield PowerCell(epsilon, rate, lift, users)


def settings_json(request: PlanRequest) -> dict[str, Any]:
    """Return what decides a table besides its grid."""
    policy = request.policy()
    return {
        **{key: value for key, value in policy.as_json().items() if key != "epsilon"},
        "names": list(request.names),
        "runs": RUNS,
    }


def cell_json(cell: PowerCell) -> dict[str, Any]:
    """Return JSON types."""
    return {
        "epsilon": str(cell.epsilon),
        "base_rate": float(cell.base_rate),
        "lift": float(cell.lift),
        "users": cell.users,
    }


def print_power(request: PlanRequest, cells: Sequence[PowerCell], output: str) -> None:
    """Show the table in the format asked for."""
    if output == "json":
        found = [cell_json(cell) for cell in cells]
        settings = {"settings": settings_json(request), **request.measured.as_json()}
        print_json("plan", {**settings, "power": found})
        return
    measured = request.measured
    out = page()
    print_text(
        out,
        f"Users needed, typically: {counted(request.arms, 'arm')}, "
        f"{request.mechanism}, p = {float(request.failure_probability):g}",
        "bold",
    )
    epsilons = list(dict.fromkeys(cell.epsilon for cell in cells))
    users = {(cell.base_rate, cell.lift, cell.epsilon): cell.users for cell in cells}
    rows = []
    for rate, lift in dict.fromkeys((cell.base_rate, cell.lift) for cell in cells):
        counts = [users[rate, lift, epsilon] for epsilon in epsilons]
        texts = ["–" if count is None else f"{count:,}" for count in counts]
        rate_text = describe_rate(rate, measured)
        rows.append([rate_text, f"{float(lift):g}", *texts])
    epsilon_names = (f"ε = {float(epsilon):g}" for epsilon in epsilons)
    print_table(out, [name_rate(measured), "lift", *epsilon_names], rows)
    print_text(
        out,
        f"Mean of {RUNS} simulated experiments in all: {_describe_arms(measured)}. "
        f"–: undecided after {LONGEST * request.horizon:,} users.",
    )


def name_rate(measured: RewardRange) -> str:
    """Return what the mean of all arms but the best is called."""
    return "base rate" if measured.is_default else "others' mean"


def describe_rate(rate: Fraction, measured: RewardRange) -> str:
    """Return a base rate with its unit."""
    return describe_mean(to_part(rate, measured), measured)


def _describe_arms(measured: RewardRange) -> str:
    if measured.is_default:
        return (
            "rewards 0 or 1, one arm ahead of the others' base rate by the lift (0.1: "
            "1.1 times as often)"
        )
    return (
        f"outcomes at either end of {measured}, one arm ahead of the others' mean by "
        "the lift (0.1: 1.1 times as much)"
    )
