"""``wallflower check``: everything that can be known before anybody is asked."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from wallflower.commands.options import EngineOptions, Format


def check(
    file: Annotated[
        Path,
        typer.Argument(
            help="An experiment's TOML file, or a node's node.toml.", metavar="FILE"
        ),
    ],
    engine: Annotated[
        str,
        typer.Option(
            help="local, simulation, deployment, serve or fast.", metavar="NAME"
        ),
    ] = "local",
    run_dir: Annotated[
        Path, typer.Option(help="Where the record would go.", metavar="FOLDER")
    ] = Path("runs"),
    option: EngineOptions = None,
    output: Format = "human",
) -> None:
    """Look at everything a run needs, without asking anybody; exit 2 or 4 if it fails.

    `run` does the same by itself before it invites anybody.
    """
    from wallflower import api
    from wallflower.engines.run import engine_options
    from wallflower.output import check_format, print_json, print_line

    check_format(output)
    options = dict(engine_options(option))
    found = api.check(file, engine=engine, run_dir=run_dir, options=options)
    if output == "json":
        print_json("check", found.summary)
    else:
        for line in found.lines:
            print_line(f"{line.name}: {line.text}", f"{line.level:<5}")
        print_line(found.verdict)
    if found.error is not None:
        raise typer.Exit(found.error.exit_code)
