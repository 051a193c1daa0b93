"""``make figures``: pictures of docs/results.md, with the peer DP-SE beside ours."""

from __future__ import annotations

import argparse
import itertools
import sys
from dataclasses import replace
from pathlib import Path

from benchmarks.dp_se import FastDpSe
from wallflower.figures.plan import FIGURES, Figure, Panel, Series
from wallflower.figures.plot import make_figures
from wallflower.figures.power import make_power

WITH_DP_SE = ("paper-easy", "paper-hard", "added-policies", "added-long")


def add_dp_se(figure: Figure) -> Figure:
    """Return a figure with a curve of DP-SE in every panel."""

    def add_curve(panel: Panel) -> Panel:
        # DP-SE takes ε, p and T of the spec, and brings its own rule.
        spec = replace(panel.series[0].spec, mechanism="central-dp", radius="tight")
        peer = Series("DP-SE (trusted server)", replace(spec, ratio=None), FastDpSe)
        return replace(panel, series=(*panel.series, peer))

    return replace(figure, panels=tuple(map(add_curve, figure.panels)))


def main() -> int:
    """Draw all figures into a folder and print the files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("docs/figures"))
    parser.add_argument("--instances", type=int, default=20)
    parser.add_argument("--seed", type=int, default=42)
    arguments = parser.parse_args()
    figures = [
        add_dp_se(figure) if figure.name in WITH_DP_SE else figure for figure in FIGURES
    ]
    folder: Path = arguments.output
    steps = make_figures(figures, folder, arguments.instances, arguments.seed)
    for _, paths in itertools.chain(steps, make_power(folder)):
        print(*paths, sep="\n", end="\n" if paths else "", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
