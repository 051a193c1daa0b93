"""In which line of a TOML file a key stands.

``tomllib`` forgets the lines. A second look at the text finds them: it believes only
keys that the parsed tables have, so that texts over several lines do not mislead it.
What it does not find has no line; an error then names the key alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

Keys = tuple[str, ...]

_TABLE = re.compile(r"\s*\[\s*([^\[\]]+?)\s*\]\s*(?:#.*)?")
_ENTRY = re.compile(r"\s*([\w\"'.\s-]+?)\s*=")


class TomlTables(dict[str, Any]):
    """The tables of a file, which know where their keys stand."""

    def __init__(self, tables: Mapping[str, Any], text: str) -> None:
        super().__init__(tables)
        self._lines = _find_lines(tables, text)

    def line_of(self, keys: Keys) -> int | None:
        """Return the line of a key, of its table, or of the one key so named."""
        if len(keys) == 1 and keys not in self._lines:
            named = [line for at, line in self._lines.items() if at[-1:] == keys]
            return named[0] if len(named) == 1 else None
        for length in range(len(keys), 0, -1):
            if keys[:length] in self._lines:
                return self._lines[keys[:length]]
        return None


def _find_lines(tables: Mapping[str, Any], text: str) -> dict[Keys, int]:
    lines: dict[Keys, int] = {}
    table: Keys = ()
    for number, line in enumerate(text.splitlines(), start=1):
        if heading := _TABLE.fullmatch(line):
            keys = _split(heading[1])
            table = keys if _has(tables, keys) else table
        elif entry := _ENTRY.match(line):
            keys = (*table, *_split(entry[1]))
        else:
            continue
        if _has(tables, keys):
            # No key may stand twice: one of the two is inside a text.
            lines[keys] = 0 if keys in lines else number
    return {keys: number for keys, number in lines.items() if number}


def _split(dotted: str) -> Keys:
    return tuple(key.strip().strip("\"'") for key in dotted.split("."))


def _has(tables: Any, keys: Keys) -> bool:
    for key in keys:
        if not (isinstance(tables, Mapping) and key in tables):
            return False
        tables = tables[key]
    return True
