"""Make a set of figures, curve by curve."""

from __future__ import annotations

import json
from collections.abc import Generator, Sequence
from pathlib import Path

from wallflower.figures.data import Curve, curve, settings_of, write_figure_csv
from wallflower.figures.plan import Figure
from wallflower.figures.plot import draw
from wallflower.protocol.errors import InputError


def make_figures(
    figures: Sequence[Figure], folder: Path, instances: int, seed: int
) -> Generator[tuple[float, list[Path]], None, None]:
    """Give after each curve the part that is done and the files just written."""
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
                found = curve(panel, series, instances, seed, cache)
                curves[place, number] = found
                settings.append(settings_of(panel, series, instances, seed))
                done += 1
                yield done / total, []
        header = json.dumps({"figure": figure.name, "seed": seed, "curves": settings})
        table = folder / f"{figure.name}.csv"
        write_figure_csv(table, figure, curves, header)
        pictures = draw(figure, curves, folder, header, instances)
        yield done / total, [*pictures, table]
