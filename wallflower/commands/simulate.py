"""``wallflower simulate``: one experiment, or the mean of many, without any user."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from wallflower.commands.options import values_of

_HELP = typer.Option


def simulate(
    config: Annotated[
        Path | None, typer.Argument(help="Experiment's TOML file; flags override it.")
    ] = None,
    arms: Annotated[str | None, _HELP(help="Number of arms. [10]")] = None,
    horizon: Annotated[str | None, _HELP(help="Users in all. [1e6]")] = None,
    epsilon: Annotated[str | None, _HELP(help="Privacy level. [1]")] = None,
    mechanism: Annotated[
        str | None,
        _HELP(help="dist-dp, dist-rdp, …, or baseline dp-se, non-private. [dist-dp]"),
    ] = None,
    scale: Annotated[str | None, _HELP(help="s of dist-rdp and dist-cdp. [10]")] = None,
    policy: Annotated[
        str | None,
        _HELP(
            help="elimination decides; dp-klucb, dp-imed only give people better arms."
        ),
    ] = None,
    radius: Annotated[str | None, _HELP(help="tight, pair or paper. [tight]")] = None,
    ratio: Annotated[
        str | None, _HELP(help="Growth of batches. [3/2 for tight, else 2]")
    ] = None,
    first_batch: Annotated[
        str | None, _HELP(help="Users per arm in the first batch. [chosen]")
    ] = None,
    instance: Annotated[
        str | None, _HELP(help="easy (means in [0.25, 0.75]) or hard ([0.45, 0.55]).")
    ] = None,
    means: Annotated[
        str | None, _HELP(help="True means, separated by commas, instead of instance.")
    ] = None,
    rewards: Annotated[
        str | None,
        _HELP(help="bernoulli, gaussian, beta, or a CSV/Parquet file. [gaussian]"),
    ] = None,
    reward_sd: Annotated[
        str | None, _HELP(help="Deviation of gaussian and beta rewards. [0.1]")
    ] = None,
    instances: Annotated[str, _HELP(help="Independent experiments.")] = "1",
    failure_probability: Annotated[
        str | None, _HELP(help="Chance to lose the best arm. [0.1]")
    ] = None,
    engine: Annotated[str, _HELP(help="fast, or users (one by one).")] = "fast",
    seed: Annotated[str, _HELP(help="Decides all randomness.")] = "0",
    output: Annotated[str, _HELP("--format", help="human or json.")] = "human",
) -> None:
    """Simulate an experiment: regret, users and intervals, exact in law."""
    import json
    import sys

    from wallflower.engines.stopping import interruptible
    from wallflower.progress import progress_bar
    from wallflower.protocol.files.sections import one_of
    from wallflower.protocol.numbers import positive, probability, whole
    from wallflower.regret.report import print_report, summary
    from wallflower.regret.setup import Request, prepare

    def number(name: str, text: str | None, least: int = 0) -> int | None:
        return None if text is None else whole(name, text, at_least=least)

    one_of("format", output, ("human", "json"))
    request = Request(
        config=config,
        arms=number("arms", arms, 2),
        horizon=number("horizon", horizon, 1),
        epsilon=None if epsilon is None else positive("epsilon", epsilon),
        mechanism=mechanism,
        scale=None if scale is None else positive("scale", scale),
        policy=policy,
        radius=radius,
        ratio=None if ratio is None else positive("ratio", ratio),
        first_batch=number("first-batch", first_batch, 1),
        instance=instance,
        means=None if means is None else _means(means),
        rewards=rewards,
        reward_sd=(
            None if reward_sd is None else float(positive("reward-sd", reward_sd))
        ),
        instances=whole("instances", instances, at_least=1, at_most=1_000_000),
        failure_probability=(
            None
            if failure_probability is None
            else probability("failure-probability", failure_probability)
        ),
        engine=engine,
        seed=whole("seed", seed, at_least=0),
    )
    given = {
        field.name
        for field in dataclasses.fields(request)
        if getattr(request, field.name) is not None
    }
    with values_of(config, given):
        prepared = prepare(request)
    with interruptible() as interruption, progress_bar("simulating") as progress:
        for part in prepared.engine.steps():
            progress(part)
            if interruption.asked:
                break
    result = prepared.engine.result()
    report = summary(prepared, result)
    if output == "json":
        sys.stdout.write(json.dumps(report, ensure_ascii=False) + "\n")
    else:
        print_report(report, prepared.measured)
    sys.stdout.flush()
    if report["interrupted"]:
        sys.stderr.write("wallflower: interrupted\n")
        raise typer.Exit(130)


def _means(text: str) -> tuple[float, ...]:
    from wallflower.protocol.errors import InputError

    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        allowed = "numbers in [0, 1] separated by commas"
        raise InputError("means", f'"{text}"', allowed) from None
