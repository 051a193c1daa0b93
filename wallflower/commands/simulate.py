"""``wallflower simulate``: one experiment, or the mean of many, without any user."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from wallflower.commands.options import Changes, Format, read_options


def simulate(
    file: Annotated[
        Path | None,
        typer.Argument(help="Experiment's TOML file; options override it."),
    ] = None,
    arms: Annotated[str | None, typer.Option(help="Number of arms. [10]")] = None,
    horizon: Annotated[str | None, typer.Option(help="Users in all. [1e6]")] = None,
    epsilon: Annotated[str | None, typer.Option(help="Privacy level. [1]")] = None,
    mechanism: Annotated[
        str | None,
        typer.Option(help="dist-dp, dist-rdp, …, or non-private. [dist-dp]"),
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(
            help="elimination decides; dp-imed only gives people better arms."
        ),
    ] = None,
    changes: Changes = None,
    instances: Annotated[str, typer.Option(help="Independent experiments.")] = "1",
    engine: Annotated[str, typer.Option(help="fast, or users (one by one).")] = "fast",
    seed: Annotated[str, typer.Option(help="Decides all randomness.")] = "0",
    output: Format = "human",
) -> None:
    """Simulate an experiment: regret, users and intervals, exact in law."""
    import json
    import sys

    from wallflower import api
    from wallflower.output import check_format
    from wallflower.progress import interruptible, progress_bar
    from wallflower.regret.report import print_report

    check_format(output)
    with interruptible() as interruption, progress_bar("simulating") as progress:

        def step(part: float) -> bool:
            progress(part)
            return interruption.asked

        found = api.simulate(
            file,
            arms=arms,
            horizon=horizon,
            epsilon=epsilon,
            mechanism=mechanism,
            policy=policy,
            changes=read_options(changes),
            instances=instances,
            engine=engine,
            seed=seed,
            on_step=step,
        )
    report = found.summary
    if output == "json":
        sys.stdout.write(json.dumps(report, ensure_ascii=False) + "\n")
    else:
        print_report(report, found.prepared.measured)
    sys.stdout.flush()
    if found.interrupted:
        sys.stderr.write("wallflower: interrupted\n")
        raise typer.Exit(130)
