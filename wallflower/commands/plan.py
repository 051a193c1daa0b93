"""``wallflower plan``: the promise and its price, before anybody is asked."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wallflower.commands.options import values_of
from wallflower.commands.usage import is_given

if TYPE_CHECKING:
    from wallflower.planning.power import Grid
    from wallflower.planning.request import PlanRequest
    from wallflower.strategy.store.entries import Askable

# Numbers are taken as text and read exactly: 0.1 means 1/10, and 1e6 is a whole number.
_Number = str


def _option(text: str) -> object:
    return typer.Option(help=text, metavar="NUMBER")


def plan(
    context: typer.Context,
    config: Annotated[
        Path | None, typer.Argument(help="Experiment's TOML file; flags override it.")
    ] = None,
    arms: Annotated[_Number, _option("How many options are compared.")] = "10",
    horizon: Annotated[
        _Number, _option("Users that may be asked in all, over all arms.")
    ] = "100000",
    epsilon: Annotated[_Number, _option("Privacy level; smaller protects more.")] = "1",
    mechanism: Annotated[
        str,
        typer.Option(
            help="dist-dp, dist-rdp, dist-cdp, shuffle-dp, central-dp, local-dp, "
            "dp-se or non-private.",
            metavar="NAME",
        ),
    ] = "dist-dp",
    scale: Annotated[
        _Number, _option("Precision factor s of dist-rdp and dist-cdp.")
    ] = "10",
    ratio: Annotated[
        _Number, _option("Growth of the groups from batch to batch.")
    ] = "1.5",
    first_batch: Annotated[
        _Number, _option("Users per arm in the first batch; 0 lets the planner choose.")
    ] = "0",
    floor: Annotated[
        _Number, _option("Part of every group that surely answers and is honest.")
    ] = "0.8",
    corrupt: Annotated[
        _Number, _option("Part of a group's nodes that may work with the operator.")
    ] = "0.1",
    participations: Annotated[
        _Number, _option("How many groups one person may be in.")
    ] = "1",
    failure_probability: Annotated[
        _Number, _option("Chance to drop the best arm that you accept.")
    ] = "0.05",
    gap: Annotated[
        list[str] | None,
        typer.Option(
            help="Difference of means to be told apart, in the unit of a file's "
            "outcomes; repeat for more.",
            metavar="NUMBER",
            show_default="0.2 0.1 0.05",
        ),
    ] = None,
    base_rate: Annotated[
        _Number, _option("Mean of the other arms, for what is typical.")
    ] = "0.5",
    lift: Annotated[
        list[str] | None,
        typer.Option(
            help="Relative gap: 0.1 tells 1.1 times the base rate; instead of --gap.",
            metavar="NUMBER",
        ),
    ] = None,
    shuffle: Annotated[
        str,
        typer.Option(
            help="pure (shuffle-dp) or mixed (dist-dp): sums go through a shuffler.",
            metavar="NAME",
        ),
    ] = "",
    power: Annotated[
        bool,
        typer.Option(
            "--power",
            help="Only a table of users against lift; --epsilon, --base-rate and "
            "--lift then take several numbers, separated by commas.",
        ),
    ] = False,
    picture: Annotated[
        Path | None,
        typer.Option(help="Draw the table of --power here (.svg or .png)."),
    ] = None,
    output: Annotated[
        str, typer.Option("--format", help="human or json.", metavar="NAME")
    ] = "human",
) -> None:
    """Show what users will be promised and how many of them it takes."""
    from wallflower.output import check_format
    from wallflower.planning.plan import make_plan
    from wallflower.planning.power import Grid
    from wallflower.planning.request import PlanRequest, with_file
    from wallflower.planning.units import range_of, read_gaps
    from wallflower.planning.view import print_plan
    from wallflower.protocol.errors import InputError
    from wallflower.protocol.numbers import exact, positive, probability, whole

    check_format(output)
    given = {name for name in context.params if is_given(context, name)}
    if picture is not None and not power:
        raise InputError("picture", picture, "a file beside --power")
    # A table takes lists of these three; its request needs one of each.
    measured = range_of(config)
    rate = base_rate if "base_rate" in given and not power else None
    question = read_gaps(measured, gap or (), () if power else lift or (), rate)
    request = PlanRequest(
        arms=whole("arms", arms, at_least=2, at_most=100_000),
        horizon=whole("horizon", horizon, at_least=1, at_most=10**15),
        epsilon=positive("epsilon", "1" if power else epsilon),
        mechanism=mechanism,
        scale=positive("scale", scale),
        ratio=exact("ratio", ratio),
        first_batch=whole("first-batch", first_batch, at_least=0, at_most=10**10),
        floor=exact("floor", floor),
        corrupt=exact("corrupt", corrupt),
        participations=whole(
            "participations", participations, at_least=1, at_most=1000
        ),
        failure_probability=probability("failure-probability", failure_probability),
        gaps=question.gaps,
        base_rate=question.base_rate,
        shuffle=shuffle,
        measured=measured,
    )
    if config is not None:
        flags = given - {"epsilon"} if power else given
        with values_of(config, given):
            request = with_file(request, config, flags)
        if output == "human":
            _say_what_is_planned(config)
    if not power:
        with values_of(config, given):
            plan = make_plan(request)
        print_plan(plan, output, _askable(config))
        return
    own = None if config is None else request.epsilon
    grid = Grid.of(epsilon, base_rate, lift or (), given, own, measured=measured)
    _power(request, grid, picture, output)


def _power(request: PlanRequest, grid: Grid, picture: Path | None, output: str) -> None:
    import json

    from wallflower.figures.power import check_picture, draw_power
    from wallflower.planning.power import power_cells, print_power, settings_json
    from wallflower.progress import progress_bar

    if picture is not None:
        check_picture(picture)
    cells = []
    with progress_bar("simulating") as progress:
        for cell in power_cells(request, grid):
            cells.append(cell)
            progress(len(cells) / grid.size)
    print_power(request, cells, output)
    if picture is not None:
        title = f"Users until one of {request.arms} arms is left, {request.mechanism}"
        settings = {**settings_json(request), **request.measured.as_json()}
        draw_power(cells, [picture], title, json.dumps(settings), request.measured)


def _askable(config: Path | None) -> Askable | None:
    """Count who can be asked, where the file names the ledger of its people."""
    from wallflower.strategy.config import load_config

    if config is None or (stated := load_config(config)).nodes.ledger is None:
        return None
    from wallflower.engines.population import count_askable

    return count_askable(stated)


def _say_what_is_planned(config: Path) -> None:
    """Tell whoever wants another policy that this is not its plan."""
    from wallflower.output import page, print_text
    from wallflower.policy_text import describe_purpose
    from wallflower.strategy.bandit.spec import (
        ELIMINATION,
    )
    from wallflower.strategy.config import load_config

    policy = load_config(config).policy.name
    if policy != ELIMINATION:
        print_text(page(), f"{describe_purpose(policy)} This plans {ELIMINATION}.")
