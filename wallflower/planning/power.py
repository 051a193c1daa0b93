"""Users against lift: what an experiment typically takes, over a grid of settings."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from wallflower.output import page, print_json, print_table, print_text
from wallflower.planning.request import PlanRequest
from wallflower.planning.typical import LONGEST, RUNS, typical_users
from wallflower.protocol.errors import InputError
from wallflower.protocol.numbers import counted, exact, positive

EPSILONS = (Fraction(1, 10), Fraction(1), Fraction(10))
BASE_RATES = (Fraction(1, 100), Fraction(1, 20), Fraction(1, 5))
LIFTS = (Fraction(1), Fraction(1, 2), Fraction(1, 5), Fraction(1, 10))


@dataclass(frozen=True, slots=True)
class Grid:
    """Which settings are compared; a lift is relative to the base rate."""

    epsilons: tuple[Fraction, ...] = EPSILONS
    base_rates: tuple[Fraction, ...] = BASE_RATES
    lifts: tuple[Fraction, ...] = LIFTS

    def __post_init__(self) -> None:
        for rate in self.base_rates:
            if not 0 < rate < 1:
                raise InputError("base-rate", rate, "between 0 and 1")
            for lift in self.lifts:
                if not 0 < lift <= 1 / rate - 1:
                    allowed = f"above 0, and at most {1 / rate - 1} at rate {rate}"
                    raise InputError("lift", lift, allowed)

    @classmethod
    def of(
        cls,
        epsilon: str,
        base_rate: str,
        lift: Sequence[str],
        given: Collection[str],
        own_epsilon: Fraction | None,
    ) -> Grid:
        """Read flags, numbers separated by commas; what is not given is usual.

        `own_epsilon` is the one of an experiment's file, which joins the usual ones.
        """
        usual = EPSILONS if own_epsilon is None else {*EPSILONS, own_epsilon}
        epsilons = tuple(sorted(usual))
        if "epsilon" in given:
            epsilons = tuple(positive("epsilon", text) for text in epsilon.split(","))
        rates: tuple[Fraction, ...] = BASE_RATES
        if "base_rate" in given:
            rates = tuple(exact("base-rate", text) for text in base_rate.split(","))
        lifts = tuple(exact("lift", part) for text in lift for part in text.split(","))
        fitting = tuple(x for x in LIFTS if x <= 1 / max(rates) - 1) or LIFTS
        return cls(epsilons, rates, lifts or fitting)

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
                users = typical_users(policy, rate, rate * lift)
                yield PowerCell(epsilon, rate, lift, users)


def settings_json(request: PlanRequest) -> dict[str, Any]:
    """Give what decides a table besides its grid."""
    policy = request.policy()
    return {
        **{key: value for key, value in policy.as_json().items() if key != "epsilon"},
        "names": list(request.names),
        "runs": RUNS,
    }


def cell_json(cell: PowerCell) -> dict[str, Any]:
    """Give JSON types."""
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
        print_json("plan", {"settings": settings_json(request), "power": found})
        return
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
        rows.append([f"{float(rate):g}", f"{float(lift):g}", *texts])
    epsilon_names = (f"ε = {float(epsilon):g}" for epsilon in epsilons)
    print_table(out, ["base rate", "lift", *epsilon_names], rows)
    print_text(
        out,
        f"Mean of {RUNS} simulated experiments in all: rewards 0 or 1, one arm ahead "
        "of the others' base rate by the lift (0.1: 1.1 times as often). –: undecided "
        f"after {LONGEST * request.horizon:,} users.",
    )
