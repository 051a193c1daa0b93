"""Options that several commands share."""

from __future__ import annotations

from typing import Annotated

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
