"""From TOML to frozen dataclasses: one typed model, kebab-case, near misses suggested.

Numbers are read exactly (``parse_float=Decimal``). A settings class is a frozen
dataclass whose fields have plain types; nested dataclasses are TOML tables. Each class
checks its own values in ``__post_init__`` and raises `InputError`; this module adds the
file and key.
"""

from __future__ import annotations

import dataclasses
import json
import math
import tomllib
import types
import typing
from collections.abc import Collection, Mapping
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeVar

from wallflower.protocol.errors import ConfigError, InputError, nearest, not_text
from wallflower.protocol.files.lines import TomlTables
from wallflower.protocol.numbers import exact

Settings = TypeVar("Settings")


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file with exact decimals; errors name file and line."""
    try:
        text = path.read_text(encoding="utf-8-sig")  # some editors begin with a mark
    except FileNotFoundError:
        raise ConfigError(str(path), "no such file") from None
    except IsADirectoryError:
        inside = path / "experiment.toml"
        hint = f"; did you mean {inside}?" if inside.is_file() else ""
        raise ConfigError(str(path), f"is a folder{hint}") from None
    except OSError as error:
        raise ConfigError(str(path), f"cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise not_text(path) from None
    try:
        return TomlTables(tomllib.loads(text, parse_float=Decimal), text)
    except RecursionError:
        raise ConfigError(str(path), "is not valid TOML: it nests too deep") from None
    except tomllib.TOMLDecodeError as error:
        last = f"at the end, line {len(text.splitlines())}"
        reason = str(error).replace("at end of document", last)
        raise ConfigError(str(path), f"is not valid TOML: {reason}") from None


class _UnknownKeyError(ConfigError):
    """A key that its table does not have; another table may."""

    def __init__(
        self, where: str, key: str, known: Collection[str], home: str = ""
    ) -> None:
        self._key, self._known = key, known
        hint = f" (it belongs to [{home}])" if home else nearest(key, known)
        problem = f'unknown key "{key}"{hint}; known: {", ".join(sorted(known))}'
        super().__init__(where, problem, key)

    def name_table(self, sections: Mapping[str, Collection[str]]) -> ConfigError:
        """Return the same error, which names the table that has such a key."""
        homes = [name for name, keys in sections.items() if self._key in keys]
        if len(homes) != 1:
            return self
        return _UnknownKeyError(self.where, self._key, self._known, homes[0])


def _sections(hints: Mapping[str, Any]) -> dict[str, Collection[str]]:
    """Return the keys of every table among the fields of a settings class."""
    return {
        name.replace("_", "-"): [f.name.replace("_", "-") for f in fields]
        for name, hint in hints.items()
        for kind in (hint, *typing.get_args(hint))
        if dataclasses.is_dataclass(kind)
        for fields in (dataclasses.fields(kind),)
    }


def settings_from(
    cls: type[Settings], table: Mapping[str, Any], where: str
) -> Settings:
    """Build a settings dataclass from a table; unknown keys are errors.

    Where the table was read from a file, an error names the line.
    """
    try:
        return _settings_from(cls, table, where)
    except ConfigError as error:
        keys = error.where[len(where) :].strip(".")
        named = keys.partition("[")[0].split(".")
        place = tuple(filter(None, (*named, *error.key.split("."))))
        line = table.line_of(place) if isinstance(table, TomlTables) else None
        if line is None:
            raise
        at = f"{where}:{line}" + (f": {keys}" if keys else "")
        raise ConfigError(at, error.problem) from None


def _settings_from(
    cls: type[Settings], table: Mapping[str, Any], where: str
) -> Settings:
    hints = typing.get_type_hints(cls)
    fields = {f.name.replace("_", "-"): f for f in dataclasses.fields(cls)}  # type: ignore[arg-type]
    for key in table:
        if key not in fields:
            raise _UnknownKeyError(where, key, fields)
    values: dict[str, Any] = {}
    for key, field in fields.items():
        if key in table:
            try:
                values[field.name] = _value(
                    hints[field.name], table[key], f"{where}.{key}"
                )
            except _UnknownKeyError as error:
                raise error.name_table(_sections(hints)) from None
        elif (
            field.default is dataclasses.MISSING
            and field.default_factory is dataclasses.MISSING
        ):
            raise ConfigError(where, f'"{key}" is missing')
    try:
        return cls(**values)
    except ConfigError:
        raise
    except InputError as error:
        raise ConfigError(where, str(error), error.parameter) from None


def _value(hint: Any, value: Any, where: str) -> Any:
    """Convert one TOML value to the annotated type, or say what was expected."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        inner = [a for a in arguments if a is not type(None)]
        return _first_that_fits(inner, value, where)
    if dataclasses.is_dataclass(hint):
        if not isinstance(value, Mapping):
            raise ConfigError(where, f"expected a table, got {_kind(value)}")
        return _settings_from(hint, value, where)  # type: ignore[arg-type]
    if origin is tuple:
        if not isinstance(value, list):
            raise ConfigError(where, f"expected a list, got {_kind(value)}")
        return tuple(
            _value(arguments[0], item, f"{where}[{index}]")
            for index, item in enumerate(value)
        )
    if origin is dict:
        if not isinstance(value, Mapping):
            raise ConfigError(where, f"expected a table, got {_kind(value)}")
        return {
            key: _value(arguments[1], item, f"{where}.{key}")
            for key, item in value.items()
        }
    if hint is Any:
        return value
    return _plain(hint, value, where)


def _plain(hint: type, value: Any, where: str) -> Any:
    if hint is Fraction and not isinstance(value, bool):
        try:
            return exact(where, value)
        except InputError as error:
            if not isinstance(value, int | Decimal):
                problem = f"expected a number, got {_kind(value)}"
                raise ConfigError(where, problem) from None
            problem = f"{value} is out of bounds; allowed: {error.allowed}"
            raise ConfigError(where, problem) from None
    if hint is float and isinstance(value, int | Decimal) and type(value) is not bool:
        return _double(value, where)
    if hint is Path and isinstance(value, str):
        return Path(value)
    if type(value) is hint:
        return value
    raise ConfigError(where, f"expected {_NAMES.get(hint, hint)}, got {_kind(value)}")


def _double(value: int | Decimal, where: str) -> float:
    """Convert a number of the file; one that no double holds is refused."""
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        allowed = "a finite number below 1e+308"
        raise ConfigError(where, f"{value} is out of bounds; allowed: {allowed}")
    return number


_NAMES: dict[type, str] = {
    int: "a whole number",
    float: "a number",
    str: "a text",
    bool: "true or false",
    Path: "a path",
    Fraction: "a number",
}


def _first_that_fits(hints: list[Any], value: Any, where: str) -> Any:
    error: ConfigError | None = None
    for hint in hints:
        try:
            return _value(hint, value, where)
        except ConfigError as caught:
            error = error or caught
    assert error is not None
    raise error


def _kind(value: Any) -> str:
    names = {
        str: "the text",
        bool: "the truth value",
        int: "the number",
        Decimal: "the number",
    }
    if isinstance(value, Mapping):
        return "a table"
    if isinstance(value, list):
        return "a list"
    shown = json.dumps(value, ensure_ascii=False) if type(value) is str else value
    return f"{names.get(type(value), type(value).__name__)} {shown!s}"
