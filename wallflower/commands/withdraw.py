"""``wallflower withdraw``: a person who lives on this node takes part no more."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def withdraw(
    home: Annotated[
        Path, typer.Argument(help="The node's home (with node.toml).", metavar="HOME")
    ],
    user: Annotated[
        str, typer.Argument(help="Their pseudonym on this node.", metavar="USER")
    ],
    counter: Annotated[
        Path | None, typer.Option(help="Folder of the ledger's counter; the home.")
    ] = None,
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
