"""How commands speak: tables for people, one JSON envelope for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from protocol.errors import InputError
from protocol.settings import nearest

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

SCHEMA_VERSION = 1
FORMATS = ("human", "json")
# Wide enough for the widest table when there is no terminal to ask.
_PLAIN_WIDTH = 110


def check_format(name: str) -> None:
    """Refuse an unknown --format."""
    if name not in FORMATS:
        raise InputError(
            "format",
            f'"{name}"{nearest(name, FORMATS)}',
            f"one of {', '.join(FORMATS)}",
        )


def print_json(command: str, content: Mapping[str, Any]) -> None:
    """Write the one envelope every command uses."""
    envelope = {"schema_version": SCHEMA_VERSION, "command": command, **content}
    # NaN and Infinity are not JSON: fail here rather than in the reader's program.
    json.dump(envelope, sys.stdout, indent=2, ensure_ascii=False, allow_nan=False)
    sys.stdout.write("\n")


def console() -> Console:
    """Results go to stdout; colours and borders only for a terminal."""
    from rich.console import Console

    if sys.stdout.isatty():
        return Console(highlight=False)
    return Console(highlight=False, width=_PLAIN_WIDTH, no_color=True)


def table(*headings: str, title: str = "") -> Table:
    """A table whose first column is left- and whose others are right-aligned."""
    from rich import box
    from rich.table import Table

    style = box.SIMPLE_HEAD if sys.stdout.isatty() else box.SIMPLE
    result = Table(box=style, title=title or None, title_justify="left", pad_edge=False)
    for index, heading in enumerate(headings):
        result.add_column(heading, justify="left" if index == 0 else "right")
    return result
