"""``wallflower figures``: the paper's experiments with correct noise, and our own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

_DEFAULT = Path("figures")


def figures(
    output: Annotated[Path, typer.Option(help="Folder to write to.")] = _DEFAULT,
    only: Annotated[
        list[str] | None, typer.Option(help="Name of a figure; repeat for more.")
    ] = None,
    group: Annotated[str, typer.Option(help="paper, added or all.")] = "all",
    instances: Annotated[str, typer.Option(help="Instances per curve.")] = "20",
    seed: Annotated[str, typer.Option(help="Decides all randomness.")] = "42",
    form: Annotated[str, typer.Option("--format", help="human or json.")] = "human",
) -> None:
    """Draw all figures as SVG, PNG and CSV; goes on where it was broken off."""
    import itertools
    import json
    import sys

    from wallflower.figures import power
    from wallflower.figures.plan import FIGURES
    from wallflower.figures.plot import make_figures
    from wallflower.progress import interruptible, progress_bar
    from wallflower.protocol.files.sections import one_of
    from wallflower.protocol.numbers import whole

    one_of("format", form, ("human", "json"))
    one_of("group", group, ("paper", "added", "all"))
    groups = {figure.name: figure.group for figure in FIGURES}
    groups[power.NAME] = power.GROUP
    for name in only or ():
        one_of("only", name, tuple(groups))
    wanted = {
        name
        for name, its_group in groups.items()
        if (not only or name in only) and group in ("all", its_group)
    }
    chosen = tuple(figure for figure in FIGURES if figure.name in wanted)
    count = whole("instances", instances, at_least=1, at_most=100_000)
    written: list[str] = []
    with interruptible() as interruption, progress_bar("figures") as progress:
        steps = make_figures(chosen, output, count, whole("seed", seed, at_least=0))
        last = power.make_power(output) if power.NAME in wanted else ()
        for part, paths in itertools.chain(steps, last):
            written.extend(str(path) for path in paths)
            progress(part)
            if interruption.asked:
                break
    if form == "json":
        report = {
            "schema_version": 1,
            "command": "figures",
            "files": written,
            "interrupted": interruption.asked,
        }
        sys.stdout.write(json.dumps(report) + "\n")
    else:
        sys.stdout.writelines(path + "\n" for path in written)
    if interruption.asked:
        sys.stderr.write(
            "wallflower: interrupted; the same command goes on from here\n"
        )
        raise typer.Exit(130)
