"""Make figures, curve by curve, and draw them so that they read in colour and in grey.

Every curve has its own line style and marker beside its colour; bars at the markers
show the middle 80 % of the instances. Settings and seed are embedded in SVG and PNG.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

from wallflower.figures.data import (
    Curve,
    describe_promise,
    list_settings,
    load_curve,
    write_figure_csv,
)
from wallflower.figures.plan import Figure
from wallflower.protocol.errors import InputError, optional_module

# Dark to light in grey as well (the order of Okabe and Ito's colours by luminance).
STYLES = (
    ("#000000", "-", "o"),
    ("#0072B2", "--", "s"),
    ("#D55E00", "-.", "^"),
    ("#009E73", ":", "D"),
    ("#CC79A7", (0, (5, 1, 1, 1, 1, 1)), "v"),
)


def make_figures(
    figures: Sequence[Figure], folder: Path, instances: int, seed: int
) -> Generator[tuple[float, list[Path]], None, None]:
    """Return after each curve the part that is done and the files just written."""
    cache = folder / "curves"
    try:
        cache.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError("output", folder, f"a folder ({error.strerror})") from None
    total = sum(len(panel.series) for figure in figures for panel in figure.panels)
    done = 0
    for figure in figures:
        curves: dict[tuple[int, int], Curve] = {}
        settings: list[object] = []
        for place, panel in enumerate(figure.panels):
            for number, series in enumerate(panel.series):
                found = load_curve(panel, series, instances, seed, cache)
                curves[place, number] = found
                settings.append(list_settings(panel, series, instances, seed))
                done += 1
                yield done / total, []
        header = json.dumps({"figure": figure.name, "seed": seed, "curves": settings})
        table = folder / f"{figure.name}.csv"
        write_figure_csv(table, figure, curves, header)
        pictures = draw_figure(figure, curves, folder, header, instances)
        yield done / total, [*pictures, table]


def draw_figure(
    figure: Figure,
    curves: dict[tuple[int, int], Curve],
    folder: Path,
    settings: str,
    instances: int,
) -> list[Path]:
    """Write ``NAME.svg`` and ``NAME.png``; give their paths."""
    plt = load_pyplot()
    width = 4.4 * len(figure.panels)
    drawing, axes = plt.subplots(
        1, len(figure.panels), figsize=(width, 4.2), sharey=True, squeeze=False
    )
    for place, panel in enumerate(figure.panels):
        axis = axes[0][place]
        for number, series in enumerate(panel.series):
            found = curves[place, number]
            label = f"{series.label}  ({describe_promise(series)})"
            _line(axis, found, number, len(panel.series), label)
        axis.set(xscale="log", yscale="log", title=panel.title)
        axis.set_xlabel("users t")
        axis.grid(visible=True, which="major", linewidth=0.4, alpha=0.6)
        axis.legend(fontsize=7, loc="lower left", handlelength=3.6)
    axes[0][0].set_ylabel("time-average regret Reg(t)/t  (reward per user)")
    drawing.suptitle(f"{figure.title}, {instances} instances")
    drawing.tight_layout()
    paths = [folder / f"{figure.name}.{kind}" for kind in ("svg", "png")]
    save_drawing(drawing, paths, figure.title, settings)
    return paths


def load_pyplot() -> Any:
    """Return pyplot, without a screen; says what to install where it is missing."""
    matplotlib = optional_module("matplotlib", "figures")
    matplotlib.use("Agg")
    # A fixed salt makes the same figure the same bytes; text stays text.
    style = {"svg.hashsalt": "wallflower", "svg.fonttype": "none", "font.size": 9}
    matplotlib.rcParams.update(style)
    return optional_module("matplotlib.pyplot", "figures")


def save_drawing(
    drawing: Any, paths: Sequence[Path], title: str, settings: str
) -> None:
    """Write a drawing to SVG or PNG files with its settings, and close it."""
    for path in paths:
        # What would make the same figure other bytes is left out.
        changing = "Date" if path.suffix == ".svg" else "Software"
        metadata = {"Title": title, "Description": settings, changing: None}
        drawing.savefig(path, dpi=130, metadata=metadata)
    load_pyplot().close(drawing)


def _line(axis: Any, found: Curve, number: int, count: int, label: str) -> None:
    colour, style, marker = STYLES[number % len(STYLES)]
    every = (2 + number * 9 // count, 9)  # staggered, so that bars do not overlap
    axis.errorbar(
        found.users,
        found.mean,
        yerr=(
            (found.mean - found.low).clip(min=0),
            (found.high - found.mean).clip(min=0),
        ),
        errorevery=every,
        markevery=every,
        color=colour,
        linestyle=style,
        marker=marker,
        markersize=4,
        linewidth=1.3,
        elinewidth=0.7,
        capsize=1.8,
        label=label,
    )
