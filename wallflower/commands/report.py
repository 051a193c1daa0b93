"""``wallflower report``: the page a person reads."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def report(
    run: Annotated[
        str, typer.Argument(help="The run's directory, or its id.", metavar="RUN")
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            help="The file to write; by default report.html in the run's directory.",
            metavar="FILE",
        ),
    ] = None,
) -> None:
    """Write a run as one HTML page: verdict, promise, health; exit 3 if it fails."""
    from wallflower.commands.run import NOT_VERIFIED
    from wallflower.protocol.errors import UnavailableError
    from wallflower.protocol.files.private import write_anew, write_output
    from wallflower.results.page import content, fragment
    from wallflower.results.run_folder import find_run
    from wallflower.strategy.store.journal import Journal

    directory = find_run(run)
    path = directory / "report.html" if output is None else output
    with Journal.read(directory) as journal:
        shown = content(journal)
    page = fragment("report.html", shown).encode()
    try:
        if output is None:
            write_anew(path, page, mode=0o666)
        else:
            write_output(path, page)
    except OSError as error:
        elsewhere = "; --output FILE writes elsewhere" if output is None else ""
        raise UnavailableError(
            f"{path} cannot be written ({error.strerror}){elsewhere}"
        ) from None
    typer.echo(f"{shown['verdict'].headline} {path} ({len(page):,} bytes)")
    if not shown["holds"]:
        raise typer.Exit(NOT_VERIFIED)
