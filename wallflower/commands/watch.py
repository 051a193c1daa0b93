"""``wallflower watch``: runs in a browser, live."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def watch(
    runs: Annotated[
        list[str],
        typer.Argument(help="The runs' directories, or their ids.", metavar="RUN..."),
    ],
    host: Annotated[
        str,
        typer.Option(
            help="Where to listen; elsewhere than loopback with TLS and token only.",
            metavar="ADDRESS",
        ),
    ] = "127.0.0.1",
    port: Annotated[
        int | None,
        typer.Option(help="By default 8642, or any free one.", metavar="N", max=65535),
    ] = None,
    certificate: Annotated[
        Path | None, typer.Option(help="For TLS, in PEM.", metavar="FILE")
    ] = None,
    private_key: Annotated[
        Path | None, typer.Option(help="The certificate's key.", metavar="FILE")
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(
            help="Holds what visitors must know; made if it is not there.",
            metavar="FILE",
        ),
    ] = None,
    as_child: Annotated[bool, typer.Option("--as-child", hidden=True)] = False,
) -> None:
    """Show runs on a page that follows them, also while they stop and go on."""
    import asyncio

    from wallflower.results.run_folder import find_run
    from wallflower.watching.serve import Place, check, serve

    place = Place(host, port, certificate, private_key, token_file)
    check(place)
    directories = [find_run(run) for run in runs]

    def say(address: str) -> None:
        # Whoever starts this as a child reads the address and nothing else.
        text = address if as_child else f"The page is at {address} (Ctrl-C ends it)"
        typer.echo(text)

    asyncio.run(serve(directories, place, say, child=as_child))
