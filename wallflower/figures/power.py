"""The picture of a power table: users against lift, a panel for each base rate."""

from __future__ import annotations

import csv
import json
from collections.abc import Generator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from wallflower.figures.plot import STYLES, load_pyplot, save_drawing
from wallflower.planning.power import (
    Grid,
    PowerCell,
    cell_json,
    describe_rate,
    name_rate,
    power_cells,
    settings_json,
)
from wallflower.planning.request import PlanRequest
from wallflower.protocol.errors import InputError
from wallflower.protocol.rewards.reward_range import DEFAULT_RANGE, RewardRange

NAME = "added-power"
GROUP = "added"
TITLE = "Users until decided against the lift of the best of 4 arms, typically"
REQUEST = PlanRequest(arms=4, horizon=10**7)
GRID = Grid(lifts=tuple(Fraction(x) for x in ("1", "0.5", "0.3", "0.2", "0.1", "0.05")))
_COLUMNS = ("epsilon", "base_rate", "lift", "users")


def make_power(folder: Path) -> Generator[tuple[float, list[Path]], None, None]:
    """Return after each cell the part that is done; at the end the files written.

    Cells that stand in the table of an earlier call with the same settings are read.
    """
    rows = (
        ("epsilons", GRID.epsilons),
        ("base_rates", GRID.base_rates),
        ("lifts", GRID.lifts),
    )
    grid = {name: [str(x) for x in row] for name, row in rows}
    settings = {"figure": NAME, "settings": settings_json(REQUEST), "grid": grid}
    header = json.dumps(settings)
    path = folder / f"{NAME}.csv"
    cells = _read(path, header)
    if not cells:
        for cell in power_cells(REQUEST, GRID):
            cells.append(cell)
            yield len(cells) / GRID.size, []
        _write(path, header, cells)
    pictures = [folder / f"{NAME}.{kind}" for kind in ("svg", "png")]
    draw_power(cells, pictures, TITLE, header)
    yield 1.0, [*pictures, path]


def check_picture(path: Path) -> None:
    """Refuse a file that cannot be drawn or written, before anything is simulated."""
    if path.suffix not in (".svg", ".png"):
        raise InputError("picture", path, "a name that ends in .svg or .png")
    if not path.parent.is_dir():
        raise InputError("picture", path, "a file in a folder that exists")
    load_pyplot()


def draw_power(
    cells: Sequence[PowerCell],
    paths: Sequence[Path],
    title: str,
    settings: str,
    measured: RewardRange = DEFAULT_RANGE,
) -> None:
    """Draw the cells; a file's suffix, svg or png, says how."""
    plt = load_pyplot()
    rates = list(dict.fromkeys(cell.base_rate for cell in cells))
    drawing, axes = plt.subplots(
        1, len(rates), figsize=(4.4 * len(rates), 4.2), sharey=True, squeeze=False
    )
    for axis, rate in zip(axes[0], rates, strict=True):
        panel = f"{name_rate(measured)} {describe_rate(rate, measured)}"
        axis.set(xscale="log", yscale="log", title=panel)
        _panel(axis, [cell for cell in cells if cell.base_rate == rate])
        axis.set_xlabel(f"lift of the best arm, relative to the {name_rate(measured)}")
        axis.grid(visible=True, which="major", linewidth=0.4, alpha=0.6)
        axis.legend(fontsize=8, handlelength=3.6)
    axes[0][0].set_ylabel("users until one arm is left")
    drawing.suptitle(title)
    drawing.tight_layout()
    save_drawing(drawing, paths, title, settings)


def _panel(axis: Any, cells: Sequence[PowerCell]) -> None:
    for number, epsilon in enumerate(dict.fromkeys(cell.epsilon for cell in cells)):
        colour, style, marker = STYLES[number % len(STYLES)]
        points = [
            (float(cell.lift), cell.users)
            for cell in cells
            if cell.epsilon == epsilon and cell.users is not None
        ]
        axis.plot(
            [lift for lift, _ in points],
            [users for _, users in points],
            color=colour,
            linestyle=style,
            marker=marker,
            markersize=4,
            linewidth=1.3,
            label=f"ε = {float(epsilon):g}",
        )
    lifts = sorted({float(cell.lift) for cell in cells})
    axis.set_xticks(lifts, [f"{lift:g}" for lift in lifts], minor=False)
    axis.xaxis.minorticks_off()


def _write(path: Path, header: str, cells: Sequence[PowerCell]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        file.write(f"# {header}\n")
        writer = csv.DictWriter(file, _COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(cell_json(cell) for cell in cells)


def _read(path: Path, header: str) -> list[PowerCell]:
    """Return the cells of a whole table with these settings; none otherwise."""
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        if file.readline() != f"# {header}\n":
            return []
        rows = list(csv.DictReader(file))
    cells = [
        PowerCell(
            Fraction(row["epsilon"]),
            Fraction(row["base_rate"]),
            Fraction(row["lift"]),
            int(row["users"]) if row["users"] else None,
        )
        for row in rows
    ]
    return cells if len(cells) == GRID.size else []
