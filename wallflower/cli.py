"""The command line. Imports stay light so that ``--help`` answers at once.

Exit codes: 0 done, 1 a bug or an unforeseen failure, 2 bad input, 3 a record that does
not verify, 4 something could not be reached, 130 interrupted.
"""

from __future__ import annotations

import sys

import typer

from protocol.errors import WallflowerError
from wallflower.commands import keys

app = typer.Typer(
    name="wallflower",
    help="Private multi-armed bandits: find the best option without learning "
    "anyone's outcome.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.add_typer(keys.app, name="keys")


@app.callback()
def _root() -> None:
    """Keep sub-commands even while there is only one."""


def main() -> None:
    """Run the command line; known errors become one line and an exit code."""
    try:
        app(standalone_mode=True)
    except WallflowerError as error:
        sys.stderr.write(f"wallflower: {error}\n")
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.stderr.write("wallflower: interrupted\n")
        sys.exit(130)
