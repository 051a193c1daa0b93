"""The command line as a whole."""

from __future__ import annotations

import pytest

from wallflower.cli import command_line


def names(*words: str) -> set[str | None]:
    return {command.name for command in command_line(words).registered_commands}


def test_a_command_that_is_named_is_built_alone() -> None:
    assert names("simulate", "plan") == {"simulate"}


@pytest.mark.parametrize("words", [(), ("--help",), ("simulat",), ("keys", "init")])
def test_without_a_known_name_every_command_is_built(words: tuple[str, ...]) -> None:
    assert {"simulate", "plan", "run", "verify"} <= names(*words)
