"""``wallflower sheet``: one page for the people who are asked."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


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
