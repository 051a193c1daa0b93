"""``wallflower trustee``: hold a share of the key of a run whose people arrive."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def trustee(
    home: Annotated[Path, typer.Argument(help="The trustee's home (with node.toml).")],
    invitation: Annotated[
        Path | None,
        typer.Option(help="What the operator sent; kept in the home from then on."),
    ] = None,
    counter: Annotated[
        Path | None, typer.Option(help="Folder of the ledger's counter; the home.")
    ] = None,
    patience_s: Annotated[
        float, typer.Option(min=1, help="How long the server may be away.")
    ] = 604_800.0,
) -> None:
    """Stay connected to a run and open its sums, until the run is over."""
    import asyncio
    import dataclasses
    import os

    from wallflower.clients.host import invitations
    from wallflower.clients.host.home import NodeHome
    from wallflower.clients.host.trustee import keep_trustee
    from wallflower.protocol.errors import InputError
    from wallflower.protocol.files.logs import installed_from, log_context

    trustee_home = NodeHome(home, counter)
    if invitation is not None:
        invitations.save(home, invitations.read(invitation))
    kept = invitations.kept(home)
    if len(kept) != 1:
        raise InputError(
            "invitations",
            f"{len(kept)} in {home}",
            "one: give the operator's file by --invitation, one home for each run",
        )
    root = trustee_home.authority(kept[0].root_certificate)
    invited = dataclasses.replace(kept[0], root_certificate=root)
    typer.echo(f"{trustee_home.name}: a trustee of run {invited.run_id}")
    with installed_from(os.environ), log_context(run=invited.run_id):
        over = asyncio.run(keep_trustee(trustee_home, invited, patience_s=patience_s))
    typer.echo(f"{invited.run_id}: {over}")
