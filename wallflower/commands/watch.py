"""``wallflower watch``: runs in a browser, live."""

from __future__ import annotations

from typing import Annotated

import typer


def watch(
    runs: Annotated[
        list[str],
        typer.Argument(help="The runs' directories, or their ids.", metavar="RUN..."),
    ],
    port: Annotated[
        int | None,
        typer.Option(help="By default 8642, or any free one.", metavar="N", max=65535),
    ] = None,
    as_child: Annotated[bool, typer.Option("--as-child", hidden=True)] = False,
) -> None:
    """Show runs on a page that follows them, also while they stop and go on.

    The page is on loopback. A proxy or an SSH tunnel brings it to other machines.
    """
    import asyncio

    from wallflower.results.run_folder import find_run
    from wallflower.watching.serve import serve

    directories = [find_run(run) for run in runs]

    def announce(address: str) -> None:
        # A parent process reads the address and nothing else.
        text = address if as_child else f"The page is at {address} (Ctrl-C ends it)"
        typer.echo(text)

    asyncio.run(serve(directories, port, announce, child=as_child))
