"""How the cells of a table of outcomes count, arm by arm. No value is shown.

A person is shown one arm and counts with what their cell of that arm holds. A cell
without a number counts as the value stated for unknown outcomes. A cell outside the
range would be clipped in a run; in a table it is taken for a mistake.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from wallflower.protocol.errors import ConfigError
from wallflower.protocol.numbers import counted, round_up
from wallflower.protocol.rewards.models import Doubles
from wallflower.protocol.rewards.reward_range import RewardRange
from wallflower.protocol.rewards.tables import table_rows

MOST_UNKNOWN = Fraction(1, 2)  # of an arm's cells; beyond, its mean is not of outcomes
_HOW_WRITTEN = ". Numbers are written with a point: 0.5"
_LEAST_DIFFERENCE = Fraction(1, 100)  # of the unknown parts of two arms, that is told


@dataclass(frozen=True, slots=True)
class ArmCells:
    """The cells of one arm, counted.

    Attributes
    ----------
    arm : its name, the heading of its column.
    cells : people in the table.
    empty, no_number : cells without an outcome: nothing in them, or something else.
    below, above : cells outside the range.
    first_unknown, first_outside : file, line and column of the first of these.
    """

    arm: str
    cells: int
    empty: int
    no_number: int
    below: int
    above: int
    first_unknown: str
    first_outside: str

    @property
    def unknown(self) -> int:
        """Cells without an outcome."""
        return self.empty + self.no_number

    @property
    def outside(self) -> int:
        """Cells whose outcome would be clipped."""
        return self.below + self.above

    @property
    def unknown_part(self) -> Fraction:
        """The part of the cells that have no outcome."""
        return Fraction(self.unknown, self.cells)

    def as_json(self) -> dict[str, Any]:
        """Return JSON types."""
        return {
            "arm": self.arm,
            "cells": self.cells,
            "empty": self.empty,
            "no_number": self.no_number,
            "below": self.below,
            "above": self.above,
        }


@dataclass(frozen=True, slots=True)
class Judgement:
    """What is to be said of a table before anybody is asked.

    Attributes
    ----------
    arms : the counts of every arm.
    measured : the range of the outcomes.
    if_unknown : what an unknown outcome counts as, a part of the range.
    """

    arms: tuple[ArmCells, ...]
    measured: RewardRange
    if_unknown: float

    @property
    def cells(self) -> int:
        """All cells of all arms."""
        return sum(one.cells for one in self.arms)

    def find_errors(self) -> list[ConfigError]:
        """Return why the table cannot be used, each with file, line and column."""
        outside = [self._outside(one) for one in self.arms if one.outside]
        unknown = [
            self._mostly_unknown(one)
            for one in self.arms
            if one.unknown_part > MOST_UNKNOWN
        ]
        return [*outside, *unknown]

    def find_warnings(self) -> list[str]:
        """Return what should be known of a table that can be used."""
        few = [one for one in self.arms if 0 < one.unknown_part <= MOST_UNKNOWN]
        found = [
            f"{self._count_unknown(one)} the first: {one.first_unknown}" for one in few
        ]
        parts = [one.unknown_part for one in self.arms]
        difference = max(parts) - min(parts)
        if few and difference >= _LEAST_DIFFERENCE:
            found.append(self._unequal(difference))
        return found

    def _outside(self, one: ArmCells) -> ConfigError:
        return ConfigError(
            one.first_outside,
            f"the outcome is outside rewards.range, {self.measured}. Arm "
            f'"{one.arm}" has {counted(one.outside, "such cell")} of {one.cells:,} '
            f"({one.below:,} below, {one.above:,} above). A run would clip to the "
            "nearer end: mend or clip them in the table, or state another range "
            "(docs/scaling.md)",
        )

    def _mostly_unknown(self, one: ArmCells) -> ConfigError:
        return ConfigError(
            one.first_unknown,
            f"{self._count_unknown(one)} more than half of its mean would "
            "be that value and not outcomes. Fill the cells, take the rows out, or "
            f"leave the arm out{_HOW_WRITTEN if one.no_number else ''}",
        )

    def _count_unknown(self, one: ArmCells) -> str:
        hold = "holds" if one.unknown == 1 else "hold"
        value = self.measured.describe(self.if_unknown)
        return (
            f'arm "{one.arm}": {one.unknown:,} of {counted(one.cells, "cell")} {hold} '
            f"no outcome ({one.empty:,} empty, {one.no_number:,} no number); each "
            f"counts as {value} (rewards.if-unknown);"
        )

    def _unequal(self, difference: Fraction) -> str:
        moved = float(difference) * max(self.if_unknown, 1 - self.if_unknown)
        most = self.measured.with_unit(
            round_up(self.measured.difference(moved), self.measured.decimals)
        )
        return (
            "the parts of unknown outcomes differ between arms by up to "
            f"{round_up(100 * difference, 1)} %: for this reason alone means may "
            f"differ by {most}"
        )


def read_cell(value: object) -> float | None:
    """Return the number in a cell, or None where there is no finite one."""
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def is_empty(value: object) -> bool:
    """Return whether a cell says nothing; Parquet may say so by NaN."""
    text = "" if value is None else str(value).strip()
    return text == "" or text.lower() == "nan"


@dataclass(slots=True)
class _Column:
    """One arm's column while it is read."""

    arm: str
    values: array[float] = field(default_factory=lambda: array("d"))
    empty: int = 0
    no_number: int = 0
    below: int = 0
    above: int = 0
    first_unknown: str = ""
    first_outside: str = ""

    def add(self, where: str, cell: object, judged: Judgement) -> None:
        number, measured = read_cell(cell), judged.measured
        place = f'{where}, column "{self.arm}"'
        if number is None:
            self.first_unknown = self.first_unknown or place
            self.empty += is_empty(cell)
            self.no_number += not is_empty(cell)
            self.values.append(judged.if_unknown)
            return
        self.below += number < float(measured.low)
        self.above += number > float(measured.high)
        if not measured.contains(number):
            self.first_outside = self.first_outside or place
        self.values.append(measured.to_fraction(number))

    def counted(self) -> ArmCells:
        return ArmCells(
            arm=self.arm,
            cells=len(self.values),
            empty=self.empty,
            no_number=self.no_number,
            below=self.below,
            above=self.above,
            first_unknown=self.first_unknown,
            first_outside=self.first_outside,
        )


def read_cells(
    paths: Sequence[Path],
    arms: Sequence[str],
    measured: RewardRange,
    if_unknown: float = 0.0,
) -> tuple[Judgement, tuple[Doubles, ...]]:
    """Read tables with a row per user and a column per arm, as nodes hold them.

    Returns
    -------
    Judgement
        How the cells count; whoever uses the values asks it for errors first.
    tuple of arrays
        For each arm what its people would count with, as parts of the range.
    """
    judged = Judgement((), measured, if_unknown)
    columns = [_Column(arm) for arm in arms]
    for path in paths:
        for where, cells in table_rows(path, arms):
            for column, cell in zip(columns, cells, strict=True):
                column.add(where, cell, judged)
    if not columns[0].values:
        raise ConfigError(str(paths[0]), "holds no users")
    judged = Judgement(
        tuple(column.counted() for column in columns), measured, if_unknown
    )
    return judged, tuple(np.array(column.values) for column in columns)
