"""``wallflower shuffler``: the independent party between nodes and server."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def shuffler(
    home: Annotated[Path, typer.Option(help="Folder of keys and records.")],
    listen: Annotated[str, typer.Option(help="Address to serve on.")] = "127.0.0.1:0",
    address: Annotated[
        list[str] | None,
        typer.Option(help="Name or IP that the server connects to; repeat for more."),
    ] = None,
    enrolment: Annotated[
        Path | None,
        typer.Option(
            help="Public enrolment key of the nodes; revoked.txt beside it is read too."
        ),
    ] = None,
    metrics: Annotated[
        str, typer.Option(help="Address of Prometheus metrics; empty for none.")
    ] = "",
    as_child: Annotated[bool, typer.Option("--as-child", hidden=True)] = False,
) -> None:
    """Run a shuffler; print its address and the fingerprint that nodes pin."""
    import asyncio

    from wallflower.shuffler.service import serve

    hosts = address or [listen.rpartition(":")[0]]
    asyncio.run(serve(home, listen, hosts, enrolment, metrics=metrics, child=as_child))
