"""``wallflower visit``: a node comes by at its gRPC servers, answers, and leaves."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def visit(
    home: Annotated[Path, typer.Argument(help="The node's home (with node.toml).")],
    stay: Annotated[
        bool, typer.Option(help="Come by until the runs are over, not only once.")
    ] = False,
    counter: Annotated[
        Path | None, typer.Option(help="Folder of the ledger's counter; the home.")
    ] = None,
    patience_s: Annotated[
        float | None,
        typer.Option(
            min=1, help="How long to try a gRPC server; 60, or a day with --stay."
        ),
    ] = None,
) -> None:
    """Ask every gRPC server that invited this node what it wants, answer, leave.

    For cron or a systemd timer. The node's node.toml says attendance = "cron"; Flower
    brings the invitation to a run, which is kept in the home until the run is over.
    """
    import asyncio
    import os

    from wallflower.clients.host.home import NodeHome, poll_server
    from wallflower.clients.host.invitations import kept
    from wallflower.clients.transport.polling import PollingSettings
    from wallflower.protocol.errors import RefusalError, WallflowerError
    from wallflower.protocol.files.logs import installed_from, log_context

    there = NodeHome(home, counter)
    if patience_s is None:
        patience_s = 86_400.0 if stay else 60.0
    settings = PollingSettings(patience_s=patience_s)
    failures: list[WallflowerError] = []
    for invitation in kept(home):
        with installed_from(os.environ), log_context(run=invitation.run_id):
            try:
                over = asyncio.run(
                    poll_server(there, invitation, stay=stay, settings=settings)
                )
            except RefusalError as refusal:
                # An outcome may take hours, and cron does not wait for it.
                typer.echo(f"{invitation.run_id}: {refusal.detail}")
                continue
            except WallflowerError as error:
                failures.append(error)  # the others' gRPC servers may be there
                continue
        typer.echo(f"{invitation.run_id}: {over or 'nothing more is asked'}")
    if failures:
        raise failures[0]
