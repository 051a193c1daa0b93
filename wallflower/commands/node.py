"""Commands of a node's owner: ``poll``, ``trustee`` and ``withdraw``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

CounterFolder = Annotated[
    Path | None,
    typer.Option(
        help="Folder of the ledger's counter; by default the home.", metavar="FOLDER"
    ),
]


def poll(
    home: Annotated[Path, typer.Argument(help="The node's home (with node.toml).")],
    stay: Annotated[
        bool, typer.Option(help="Poll until the runs are over, not only once.")
    ] = False,
    counter: CounterFolder = None,
    patience_s: Annotated[
        float | None,
        typer.Option(
            min=1,
            help="Seconds to try a gRPC server: 60, or a day with --stay.",
            metavar="SECONDS",
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
    invited = kept(home)
    if not invited:
        typer.echo(f"{node_home.name}: no run has invited this node")
    for invitation in invited:
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


def withdraw(
    home: Annotated[
        Path, typer.Argument(help="The node's home (with node.toml).", metavar="HOME")
    ],
    user: Annotated[
        str, typer.Argument(help="Their pseudonym on this node.", metavar="USER")
    ],
    counter: CounterFolder = None,
) -> None:
    """Take a person out of all experiments, at once; the server is not told.

    Run it on the node. Processes that serve the node need no restart.
    """
    import asyncio

    from wallflower.clients.host.home import NodeHome
    from wallflower.clients.node.spends import Withdrawal
    from wallflower.protocol.errors import InputError

    node_home = NodeHome(home, counter)
    users = node_home.find_users()
    if user not in users:
        allowed = f"one of the {len(users):,} users of {node_home.name}"
        raise InputError("user", f'"{user}"', allowed)
    with node_home.ledger() as ledger:
        asyncio.run(ledger.withdraw(Withdrawal(node_home.name, user)))
    typer.echo(
        f"{user} is asked no more. An outcome that has not left yet does not leave. "
        "To servers it looks like a spent budget."
    )


def trustee(
    home: Annotated[Path, typer.Argument(help="The trustee's home (with node.toml).")],
    invitation: Annotated[
        Path | None,
        typer.Option(
            help="What the operator sent; kept in the home from then on.",
            metavar="FILE",
        ),
    ] = None,
    counter: CounterFolder = None,
    patience_s: Annotated[
        float,
        typer.Option(
            min=1, help="Seconds that the server may be away.", metavar="SECONDS"
        ),
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
    kept = {one.run_id: one for one in invitations.kept(home)}
    given = None if invitation is None else invitations.read(invitation)
    if given is not None:
        kept[given.run_id] = given
    if len(kept) != 1:
        raise InputError(
            "invitations",
            f"for {', '.join(kept)}" if kept else "missing",
            "one: give the operator's file by --invitation; one home for each run",
        )
    (invited,) = kept.values()
    if given is not None:
        invitations.save(home, given)
    root = trustee_home.authority(invited.root_certificate)
    invited = dataclasses.replace(invited, root_certificate=root)
    typer.echo(f"{trustee_home.name}: a trustee of run {invited.run_id}")
    with installed_from(os.environ), log_context(run=invited.run_id):
        over = asyncio.run(keep_trustee(trustee_home, invited, patience_s=patience_s))
    typer.echo(f"{invited.run_id}: {over}")
