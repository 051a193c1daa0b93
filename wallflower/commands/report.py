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
    from wallflower.engines.run import find_run
    from wallflower.protocol.errors import UnavailableError
    from wallflower.results.page import content, render
    from wallflower.strategy.record.journal import Journal

    directory = find_run(run)
    path = directory / "report.html" if output is None else output
    with Journal.read(directory) as journal:
        shown = content(journal)
    page = render(shown)
    try:
        path.write_text(page, encoding="utf-8")
    except OSError as error:
        raise UnavailableError(f"{path} cannot be written ({error.strerror})") from None
    typer.echo(f"{shown['verdict'].headline} {path} ({len(page.encode()):,} bytes)")
    if not shown["holds"]:
        raise typer.Exit(NOT_VERIFIED)
