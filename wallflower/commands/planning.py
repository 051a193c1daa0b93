"""``wallflower plan``, ``simulate`` and ``sheet``: before anybody is asked.

Numbers are taken as text and read exactly: 0.1 means 1/10, and 1e6 is a whole number.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wallflower.commands.options import Changes, Format, read_options

if TYPE_CHECKING:
    from wallflower.planning.power import Grid
    from wallflower.planning.request import PlanRequest

_Number = str | None
_MECHANISMS = (
    "dist-dp, dist-rdp, dist-cdp, shuffle-dp, central-dp, local-dp or non-private."
)


def _option(text: str, usual: str) -> Any:
    return typer.Option(help=text, metavar="NUMBER", show_default=usual)


_File = Annotated[
    Path | None, typer.Argument(help="Experiment's TOML file; options override it.")
]
_Arms = Annotated[_Number, _option("How many options are compared.", "10")]
_Epsilon = Annotated[_Number, _option("Privacy level; smaller protects more.", "1")]
_MechanismName = Annotated[
    str | None,
    typer.Option(help=_MECHANISMS, metavar="NAME", show_default="dist-dp"),
]


def plan(
    file: _File = None,
    arms: _Arms = None,
    horizon: Annotated[
        _Number, _option("Users that may be asked in all, over all arms.", "100000")
    ] = None,
    epsilon: _Epsilon = None,
    mechanism: _MechanismName = None,
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
        _Number,
        _option("Mean of the other arms, for what is typical.", "the file's, or 0.5"),
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
    from wallflower import api
    from wallflower.output import check_format, page, print_text
    from wallflower.planning.power import Grid
    from wallflower.planning.view import print_plan
    from wallflower.protocol.errors import InputError

    check_format(output)
    if picture is not None and not power:
        raise InputError("picture", picture, "a file beside --power")
    flags = {"arms": arms, "horizon": horizon, "mechanism": mechanism}
    changed = read_options(changes)
    if not power:
        found = api.plan(
            file,
            **flags,
            epsilon=epsilon,
            gaps=gap or (),
            lifts=lift or (),
            base_rate=base_rate,
            changes=changed,
        )
        if found.warning and output == "human":
            print_text(page(), found.warning)
        print_plan(found.plan, output, found.askable)
        return

    # A table takes lists of ε, base rates and lifts; its request needs one of each.
    config, request = api.read_plan_request(
        file, flags, gap or (), (), base_rate=None, changes=changed
    )
    warning = "" if file is None else api.describe_other_policy(config)
    if warning and output == "human":
        print_text(page(), warning)
    own = None if file is None and not changes else request.epsilon
    measured = config.reward_range
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


def sheet(
    file: Annotated[
        Path, typer.Argument(help="The experiment's TOML file.", metavar="FILE")
    ],
    language: Annotated[str, typer.Option(help="en or de.", metavar="NAME")] = "en",
    output: Annotated[
        Path, typer.Option(help="The file to write.", metavar="FILE")
    ] = Path("sheet.html"),
) -> None:
    """Write one page for participants: what happens, and what nobody learns."""
    from wallflower import api
    from wallflower.protocol.errors import UnavailableError
    from wallflower.protocol.files.private import write_output
    from wallflower.results.sheet import write_sheet

    config, request = api.read_plan_request(
        file, {}, (), (), base_rate=None, changes=None
    )
    page = write_sheet(config, request, file, language)
    try:
        write_output(output, page.encode())
    except OSError as error:
        raise UnavailableError(
            f"{output} cannot be written ({error.strerror})"
        ) from None
    typer.echo(f"{output}: open it in a browser and print it")


def simulate(
    file: _File = None,
    arms: _Arms = None,
    horizon: Annotated[
        _Number, _option("Users that may be asked in all, over all arms.", "1000000")
    ] = None,
    epsilon: _Epsilon = None,
    mechanism: _MechanismName = None,
    policy: Annotated[
        str | None,
        typer.Option(
            help="elimination decides; dp-imed only gives people better arms.",
            metavar="NAME",
            show_default="elimination",
        ),
    ] = None,
    changes: Changes = None,
    instances: Annotated[
        str, typer.Option(help="Independent experiments.", metavar="NUMBER")
    ] = "1",
    engine: Annotated[
        str, typer.Option(help="fast, or users (one by one).", metavar="NAME")
    ] = "fast",
    seed: Annotated[
        str, typer.Option(help="Decides all randomness.", metavar="NUMBER")
    ] = "0",
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
