"""``wallflower simulate``: one experiment, or the mean of many, without any user."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from wallflower.commands.options import Changes, Format, name_file


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

    from wallflower.output import check_format
    from wallflower.progress import interruptible, progress_bar
    from wallflower.protocol.numbers import positive, whole
    from wallflower.regret.report import print_report, summarize
    from wallflower.regret.setup import USUAL, Request, prepare

    check_format(output)
    experiment = None
    options: set[str] = set()
    if file is not None or changes:
        from wallflower.stated_experiment import changed_keys, read_experiment

        experiment = read_experiment(file, changes or (), USUAL)
        options = changed_keys(changes or ())
    request = Request(
        experiment=experiment,
        arms=None if arms is None else whole("arms", arms, at_least=2),
        horizon=None if horizon is None else whole("horizon", horizon, at_least=1),
        epsilon=None if epsilon is None else positive("epsilon", epsilon),
        mechanism=mechanism,
        policy=policy,
        instances=whole("instances", instances, at_least=1, at_most=1_000_000),
        engine=engine,
        seed=whole("seed", seed, at_least=0),
    )
    options |= {"instances", "engine", "seed", *request.policy_changes}
    if arms is not None:
        options.add("arms")
    with name_file(file, options):
        prepared = prepare(request)
    with interruptible() as interruption, progress_bar("simulating") as progress:
        for part in prepared.engine.steps():
            progress(part)
            if interruption.asked:
                break
    result = prepared.engine.result()
    report = summarize(prepared, result)
    if output == "json":
        sys.stdout.write(json.dumps(report, ensure_ascii=False) + "\n")
    else:
        print_report(report, prepared.measured)
    sys.stdout.flush()
    if report["interrupted"]:
        sys.stderr.write("wallflower: interrupted\n")
        raise typer.Exit(130)
