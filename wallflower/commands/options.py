"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
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
Changes = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="A key of the experiment's file, such as privacy.epsilon=0.5; repeatable.",
        metavar="KEY=VALUE",
    ),
]


@contextmanager
def name_file(file: Path | None, given: Collection[str]) -> Iterator[None]:
    """Name the file in which a value is wrong, unless an option gave that value."""
    from wallflower.protocol.errors import ConfigError, InputError

    try:
        yield
    except ConfigError:
        raise
    except InputError as error:
        if file is None or error.parameter.replace("-", "_") in given:
            raise
        raise ConfigError(str(file), str(error)) from None
