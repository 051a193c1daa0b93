"""``wallflower poll``: a node asks its gRPC servers for work, answers, and ends."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def poll(
    home: Annotated[Path, typer.Argument(help="The node's home (with node.toml).")],
    stay: Annotated[
        bool, typer.Option(help="Poll until the runs are over, not only once.")
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
    """Ask every gRPC server that invited this node for work, answer, and end.

    For cron or a systemd timer, with connection = "cron" in node.toml. Flower brings
    the invitation to a run, which stays in the home until the run is over.
    """
    import asyncio
    import os

    from wallflower.clients.host.home import NodeHome, poll_server
    from wallflower.clients.host.invitations import kept
    from wallflower.clients.transport.polling import PollingSettings
    from wallflower.protocol.errors import RefusalError, WallflowerError
    from wallflower.protocol.files.logs import installed_from, log_context

    node_home = NodeHome(home, counter)
    if patience_s is None:
        patience_s = 86_400.0 if stay else 60.0
    settings = PollingSettings(patience_s=patience_s)
    failures: list[WallflowerError] = []
    for invitation in kept(home):
        with installed_from(os.environ), log_context(run=invitation.run_id):
            try:
                end_reason = asyncio.run(
                    poll_server(node_home, invitation, stay=stay, settings=settings)
                )
            except RefusalError as refusal:
                # An outcome may take hours, and cron does not wait for it.
                typer.echo(f"{invitation.run_id}: {refusal.detail}")
                continue
            except WallflowerError as error:
                failures.append(error)  # other servers may still be reachable
                continue
        typer.echo(f"{invitation.run_id}: {end_reason or 'no more work now'}")
    if failures:
        raise failures[0]
