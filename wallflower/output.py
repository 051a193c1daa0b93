"""How commands speak: tables for people, one JSON envelope for programs."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from wallflower.protocol.errors import InputError, nearest

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

SCHEMA_VERSION = 1
FORMATS = ("human", "json")
# Numbers must never be cut: a narrow terminal folds lines of a table instead.
_LEAST_WIDTH = 130
_TEXT_WIDTH = 96


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
    sys.stdout.write(json_text(command, content))


def json_text(command: str, content: Mapping[str, Any]) -> str:
    """Give the one envelope every command uses."""
    envelope = {"schema_version": SCHEMA_VERSION, "command": command, **content}
    # NaN and Infinity are not JSON: fail here rather than in the reader's program.
    text = json.dumps(envelope, indent=2, ensure_ascii=False, allow_nan=False)
    return f"{text}\n"


def console(least_width: int = _LEAST_WIDTH) -> Console:
    """Results go to stdout; colours only for a terminal.

    A terminal narrower than `least_width` folds lines itself.
    """
    from rich.console import Console

    if sys.stdout.isatty():
        own = Console(highlight=False)
        return Console(highlight=False, width=max(own.width, least_width))
    return Console(highlight=False, width=_LEAST_WIDTH, no_color=True)


def print_text(out: Console, text: str) -> None:
    """Write a paragraph, folded where lines are pleasant to read."""
    out.print(text, width=min(_TEXT_WIDTH, shutil.get_terminal_size().columns))


def table(*headings: str, title: str = "") -> Table:
    """A table whose first column is left- and whose others are right-aligned."""
    from rich import box
    from rich.table import Table

    style = box.SIMPLE_HEAD if sys.stdout.isatty() else box.SIMPLE
    result = Table(box=style, title=title or None, title_justify="left", pad_edge=False)
    for index, heading in enumerate(headings):
        result.add_column(
            heading, justify="left" if index == 0 else "right", no_wrap=True
        )
    return result
