"""``wallflower keys``: the authority, the server's certificate, nodes, revocation.

Everything is made in one folder whose parts go to different places; `KeyStore` says
which. Registration with SuperLink runs on the operator's host through ``flwr``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from wallflower.commands.options import Commands, Format

app = typer.Typer(
    cls=Commands,
    help="Make, list and revoke the keys of a consortium.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Folder = Annotated[Path, typer.Option("--keys", help="Folder of the keys.")]
Days = Annotated[int, typer.Option(min=1, max=3650, help="Days that it is valid.")]
Addresses = Annotated[
    list[str],
    typer.Option("--address", help="Name or IP that nodes dial; repeat for more."),
]
_DEFAULT = Path("keys")


@app.command("init")
def init(
    address: Addresses,
    keys: Folder = _DEFAULT,
    name: Annotated[str, typer.Option(help="Shown in certificates.")] = "Wallflower",
    days: Days = 397,
    output: Format = "human",
) -> None:
    """Make the authority, the enrolment key and the operator's certificate."""
    from wallflower.keys.store import KeyStore

    store = KeyStore(keys)
    store.create(name, address, days=days)
    _say(
        output,
        "keys init",
        {"folder": str(keys), "server_expires": store.server_expires().isoformat()},
        f"{store.authority}: keep offline; {store.operator}: to the operator's host.\n"
        f"Next: wallflower keys node NAME --keys {keys}",
    )


@app.command("server")
def server(
    address: Addresses,
    keys: Folder = _DEFAULT,
    days: Days = 397,
    output: Format = "human",
) -> None:
    """Renew the server's certificate; the former one is kept beside it."""
    from wallflower.keys.store import KeyStore

    store = KeyStore(keys)
    path = store.issue_server(address, days=days)
    expires = store.server_expires().isoformat()
    _say(
        output,
        "keys server",
        {"certificate": str(path), "server_expires": expires},
        f"{path}: valid until {expires}; copy {store.operator} to the operator's host "
        "and restart the proxy and SuperLink.",
    )


@app.command("node")
def node(
    names: Annotated[list[str], typer.Argument(help="Names of the nodes to enrol.")],
    keys: Folder = _DEFAULT,
    capacity: Annotated[
        int, typer.Option(min=1, help="Most users a node may speak for.")
    ] = 10_000,
    days: Days = 397,
    output: Format = "human",
) -> None:
    """Make the keys of nodes and enrol them."""
    import datetime

    from wallflower.keys.store import KeyStore

    store = KeyStore(keys)
    now = datetime.datetime.now(datetime.UTC)
    store.check_new(names)
    folders = [store.add_node(n, capacity=capacity, days=days, now=now) for n in names]
    _say(
        output,
        "keys node",
        {"nodes": [str(folder) for folder in folders]},
        "\n".join(f"{folder}: to that node's host" for folder in folders)
        + f"\nNext, on the operator's host: wallflower keys register --keys {keys}",
    )


@app.command("register")
def register(
    superlink: Annotated[
        str, typer.Option(help="Connection of Flower's config.toml.")
    ] = "wallflower",
    names: Annotated[
        list[str] | None, typer.Argument(help="Nodes; all of the folder if none.")
    ] = None,
    keys: Folder = _DEFAULT,
    output: Format = "human",
) -> None:
    """Register with SuperLink the nodes' public keys (runs ``flwr``)."""
    from wallflower.keys.store import KeyStore

    done = KeyStore(keys).register(names or [], superlink)
    _say(
        output,
        "keys register",
        {"registered": done},
        f"SuperLink knows {len(done)} more nodes: {', '.join(done) or 'none'}",
    )


@app.command("revoke")
def revoke(
    name: Annotated[str, typer.Argument(help="The node's name.", metavar="NAME")],
    keys: Folder = _DEFAULT,
    output: Format = "human",
) -> None:
    """Stop believing a node: its serial goes on every list of revoked ones."""
    from wallflower.keys.store import KeyStore

    serial = KeyStore(keys).revoke(name)
    _say(
        output,
        "keys revoke",
        {"node": name, "serial": serial},
        f"{name} (serial {serial}) is revoked. Copy revoked.txt to the operator, to "
        "the nodes and to a shuffler, and run `flwr supernode unregister` for it.",
    )


@app.command("list")
def list_keys(keys: Folder = _DEFAULT, output: Format = "human") -> None:
    """Show nodes, capacities and when things expire."""
    from wallflower.keys.store import KeyStore
    from wallflower.protocol.numbers import counted

    store = KeyStore(keys)
    records = store.records()
    rows = [
        {
            "name": record.name,
            "serial": record.serial,
            "expires": record.expires.isoformat(),
            "capacity": record.capacity,
            "revoked": record.revoked,
        }
        for record in records
    ]
    expires = store.server_expires().isoformat()
    lines = [f"server certificate until {expires}"]
    lines += [
        f"{r.name:<24} until {r.expires:%Y-%m-%d}  "
        f"up to {counted(r.capacity, 'user')}" + ("  REVOKED" if r.revoked else "")
        for r in records
    ]
    _say(
        output,
        "keys list",
        {"server_expires": expires, "nodes": rows},
        "\n".join(lines),
    )


def _say(output: str, command: str, facts: dict[str, object], human: str) -> None:
    from wallflower.protocol.files.sections import one_of

    one_of("format", output, ("human", "json"))
    if output == "json":
        envelope = {"schema_version": 1, "command": command, **facts}
        typer.echo(json.dumps(envelope))
    else:
        typer.echo(human)


# ``wallflower invite``: one-time invitations for people who arrive.


def invite(
    count: Annotated[int, typer.Argument(min=1, help="How many people to invite.")],
    keys: Annotated[Path, typer.Option(help="Folder of the inviter's key.")],
    days: Annotated[
        int, typer.Option(min=1, max=3650, help="Days that they are good.")
    ] = 30,
    output: Format = "human",
) -> None:
    """Make invitations, one a line; the first use makes the inviter's key."""
    import datetime

    from wallflower.keys.store import INVITER_PUBLIC, Inviter
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
