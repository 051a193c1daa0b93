"""A group of commands: its help is not cut, and Ctrl-C ends it with a word."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer
import typer.core

if TYPE_CHECKING:
    import click


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

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; typer would end silently where it is interrupted."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise typer.Abort from None
