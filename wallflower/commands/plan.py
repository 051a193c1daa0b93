"""``wallflower plan``: the promise and its price, before anybody is asked."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wallflower.commands.options import Changes, name_file

if TYPE_CHECKING:
    from wallflower.planning.power import Grid
    from wallflower.planning.request import PlanRequest
    from wallflower.strategy.config import ExperimentConfig
    from wallflower.strategy.store.entries import Askable

# Numbers are taken as text and read exactly: 0.1 means 1/10, and 1e6 is a whole number.
_Number = str | None
_USUAL = {"experiment": {"name": "plan", "horizon": 100_000}}


def _option(text: str, usual: str) -> Any:
    return typer.Option(help=text, metavar="NUMBER", show_default=usual)


def plan(
    file: Annotated[
        Path | None,
        typer.Argument(help="Experiment's TOML file; options override it."),
    ] = None,
    arms: Annotated[_Number, _option("How many options are compared.", "10")] = None,
    horizon: Annotated[
        _Number, _option("Users that may be asked in all, over all arms.", "100000")
    ] = None,
    epsilon: Annotated[
        _Number, _option("Privacy level; smaller protects more.", "1")
    ] = None,
    mechanism: Annotated[
        str | None,
        typer.Option(
            help="dist-dp, dist-rdp, dist-cdp, shuffle-dp, central-dp, local-dp or "
            "non-private.",
            metavar="NAME",
            show_default="dist-dp",
        ),
    ] = None,
    changes: Changes = None,
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
        _Number, _option("Mean of the other arms, for what is typical.", "0.5")
    ] = None,
    lift: Annotated[
        list[str] | None,
        typer.Option(
            help="Relative gap: 0.1 tells 1.1 times the base rate; instead of --gap.",
            metavar="NUMBER",
        ),
    ] = None,
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
    from wallflower.planning.request import read_request
    from wallflower.planning.units import read_gaps
    from wallflower.planning.view import print_plan
    from wallflower.protocol.errors import InputError
    from wallflower.protocol.numbers import positive, whole
    from wallflower.stated_experiment import changed_keys, read_experiment

    check_format(output)
    if picture is not None and not power:
        raise InputError("picture", picture, "a file beside --power")
    flags: dict[str, Any] = {}
    if arms is not None:
        flags["arms"] = whole("arms", arms, at_least=2, at_most=100_000)
    if horizon is not None:
        flags["horizon"] = whole("horizon", horizon, at_least=1, at_most=10**15)
    # A table takes lists of ε, base rates and lifts; its request needs one of each.
    if epsilon is not None and not power:
        flags["epsilon"] = positive("epsilon", epsilon)
    if mechanism is not None:
        flags["mechanism"] = mechanism
    stated = read_experiment(file, changes or (), _USUAL)
    measured = stated.config.reward_range
    rate = None if power else base_rate
    question = read_gaps(measured, gap or (), () if power else lift or (), rate)
    options = {*flags, *changed_keys(changes or ())}
    with name_file(file, options):
        request = read_request(stated, flags, question)
    if file is not None and output == "human":
        _print_other_policy(stated.config)
    if not power:
        with name_file(file, options):
            plan = make_plan(request)
        print_plan(plan, output, _count_askable(stated.config))
        return
    own = None if file is None and not changes else request.epsilon
    grid = Grid.read(epsilon, base_rate, lift or (), own, measured=measured)
    _print_power(request, grid, picture, output)


def _print_power(
    request: PlanRequest, grid: Grid, picture: Path | None, output: str
) -> None:
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


def _count_askable(config: ExperimentConfig) -> Askable | None:
    """Count who can be asked, where the file names the ledger of its people."""
    if config.nodes.ledger is None:
        return None
    from wallflower.engines.population import count_askable

    return count_askable(config)


def _print_other_policy(config: ExperimentConfig) -> None:
    """Warn whoever wants another policy that this is not its plan."""
    from wallflower.output import page, print_text
    from wallflower.policy_text import describe_purpose
    from wallflower.strategy.bandit.spec import ELIMINATION

    if config.policy.name != ELIMINATION:
        text = f"{describe_purpose(config.policy.name)} This plans {ELIMINATION}."
        print_text(page(), text)
