"""What several commands share: options, the group of commands, typer's errors."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer
import typer.core

if TYPE_CHECKING:
    import click

if TYPE_CHECKING:
    from click.exceptions import ClickException as ClickException
    from click.exceptions import NoArgsIsHelpError as NoArgsIsHelpError
else:
    _errors = importlib.import_module(typer.BadParameter.__module__)
    ClickException = _errors.ClickException
    NoArgsIsHelpError = _errors.NoArgsIsHelpError

# What typer raises for wrong words, whichever copy of click it runs on.
#
# Typer ran on the package click; newer versions bring a copy of their own, whose errors
# are other classes. Both are found through typer itself.


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


# A group of commands: its help is not cut, and Ctrl-C ends it with a word.


class ReaderGoneError(Exception):
    """The reader of the output has gone; click would make it a failure of ours."""


class Commands(typer.core.TyperGroup):
    """Commands, listed with all that their first sentence says."""

    def format_commands(
        self, ctx: click.Context, formatter: click.HelpFormatter
    ) -> None:
        """List the commands; what does not fit beside one goes on below."""
        whole = 1_000  # as long as a sentence may be before click cuts it
        rows = [
            (name, command.get_short_help_str(whole))
            for name in self.list_commands(ctx)
            if (command := self.get_command(ctx, name)) and not command.hidden
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        """Read the words; those such as ``--version`` are answered here."""
        with _own_ends():
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        with _own_ends():
            return super().invoke(ctx)


@contextmanager
def _own_ends() -> Iterator[None]:
    """Hide from click what it would end with no word, or with a failure of ours."""
    try:
        yield
    except KeyboardInterrupt:
        raise typer.Abort from None
    except BrokenPipeError:
        raise ReaderGoneError from None
