"""Options that several commands share."""

from __future__ import annotations

from typing import Annotated, Any

import typer

Format = Annotated[str, typer.Option("--format", help="human or json.", metavar="NAME")]
EngineOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        "-o",
        help="For the engine, KEY=VALUE; docs/flower.md lists them.",
        metavar="KEY=VALUE",
    ),
]
Changes = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="A key of the experiment's file, such as privacy.epsilon=0.5; repeatable.",
        metavar="KEY=VALUE",
    ),
]


def read_options(changes: list[str] | None) -> dict[str, Any]:
    """Return what ``--set`` changes, by key."""
    if not changes:
        return {}
    from wallflower.stated_experiment import read_changes

    return read_changes(changes)
