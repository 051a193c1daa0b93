"""``wallflower invite``: one-time invitations for people who arrive."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from wallflower.commands.options import Format


def invite(
    count: Annotated[int, typer.Argument(min=1, help="How many people to invite.")],
    keys: Annotated[Path, typer.Option(help="Folder of the inviter's key.")],
    days: Annotated[int, typer.Option(min=1, max=3650, help="How long good.")] = 30,
    output: Format = "human",
) -> None:
    """Make invitations, one a line; the first use makes the inviter's key."""
    import datetime

    from wallflower.keys.inviter import INVITER_PUBLIC, Inviter
    from wallflower.output import print_json
    from wallflower.protocol.files.sections import one_of

    one_of("format", output, ("human", "json"))
    inviter = Inviter(keys)
    if inviter.is_new:
        typer.echo(
            f"{keys / INVITER_PUBLIC}: to the operator (visitors.inviter) and to every "
            "trustee. Keep the key beside it away from the server.",
            err=True,
        )
    made = inviter.invite(count, days=days, now=datetime.datetime.now(datetime.UTC))
    if output == "human":
        for invitation in made:
            typer.echo(invitation.text())
        return
    rows = []
    for invitation in made:
        certificate = invitation.identity.certificate
        assert certificate is not None
        rows.append({"invitation": invitation.text(), "serial": certificate.serial})
    print_json("invite", {"invitations": rows})
