"""The command line. Imports stay light so that ``--help`` answers at once.

Exit codes: 0 done, 1 a bug or an unforeseen failure, 2 bad input, 3 a record that does
not verify, 4 something could not be reached, 130 interrupted.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import islice, pairwise, takewhile
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer
import typer.core
import typer.main

from wallflower.commands import keys
from wallflower.commands.check import check
from wallflower.commands.figures import figures
from wallflower.commands.keys import invite
from wallflower.commands.new import new
from wallflower.commands.node import poll, trustee, withdraw
from wallflower.commands.options import (
    ClickException,
    Commands,
    NoArgsIsHelpError,
    ReaderGoneError,
)
from wallflower.commands.planning import plan, sheet, simulate
from wallflower.commands.record import archive, export, report
from wallflower.commands.run import pause, resume, retire, run, status, verify
from wallflower.commands.servers import serve, shuffler, watch
from wallflower.output import error_json, print_json
from wallflower.protocol.errors import UnavailableError, WallflowerError
from wallflower.version import __version__

if TYPE_CHECKING:
    import click

# With rich installed, typer escapes "[default: …]" for rich even where it prints the
# plain help we want: the backslash would be seen.
typer.core.HAS_RICH = False

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EIO)  # a disk that takes no more
# A file or folder that this account may not use, or that cannot be.
_BARRED = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG, errno.ELOOP)

_COMMANDS: dict[str, Callable[..., None]] = {
    "new": new,
    "plan": plan,
    "check": check,
    "run": run,
    "resume": resume,
    "pause": pause,
    "retire": retire,
    "status": status,
    "verify": verify,
    "report": report,
    "sheet": sheet,
    "watch": watch,
    "export": export,
    "archive": archive,
    "simulate": simulate,
    "figures": figures,
    "shuffler": shuffler,
    "poll": poll,
    "trustee": trustee,
    "withdraw": withdraw,
    "invite": invite,
    "serve": serve,
}


class _Argument(typer.core.TyperArgument):
    """An argument with its help, which click 8.5 forgets where typer tells it first."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._help_text = settings.get("help") or ""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str]:
        name, text = super().get_help_record(ctx) or (self.name or "", "")
        return name, text if self.help else f"{self._help_text}  {text}".strip()


typer.main.TyperArgument = _Argument  # type: ignore[attr-defined]


def _say_version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"wallflower {__version__}\n")
        raise typer.Exit


def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_say_version,
            is_eager=True,
            help="Say which version this is.",
        ),
    ] = False,
) -> None:
    """Take the options that stand before a command."""


def command_line(words: Sequence[str] = ()) -> typer.Typer:
    """Build all commands, or the one that the first of `words` names.

    Typer reads the signatures of all that it is given before it looks at the words,
    which takes a twentieth of the processor time of a short command.
    """
    built = typer.Typer(
        name="wallflower",
        cls=Commands,
        help="Private multi-armed bandits: find the best option without learning "
        "anyone's outcome.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
    built.callback()(_root)
    named = [name for name in words[:1] if name in _COMMANDS]
    for name in named or _COMMANDS:
        built.command(name)(_COMMANDS[name])
    if not named:
        built.add_typer(keys.app, name="keys")
    return built


def main() -> None:
    """Run the command line; known errors become one line and an exit code."""
    sys.exit(_run(sys.argv[1:]))


def _run(words: Sequence[str]) -> int:
    """Run a command; return its exit code."""
    try:
        _require_folder()
        code = command_line(words)(standalone_mode=False)
        sys.stdout.flush()  # what cannot be written is noticed here, not at the end
    except NoArgsIsHelpError as error:
        sys.stdout.write(f"{error.format_message()}\n")
        return 2
    except ClickException as error:
        return _fail(words, _one_line(error.format_message()), error.exit_code)
    except WallflowerError as error:
        return _fail(words, str(error), error.exit_code)
    except (typer.Abort, KeyboardInterrupt):
        return _fail(words, "interrupted", 130)
    except (BrokenPipeError, ReaderGoneError):
        # The reader has gone (`| head`); nothing more can be said to it.
        _discard(sys.stdout)
        return 0
    except OSError as error:
        if error.errno in _BARRED and error.filename is not None:
            text = f"{error.filename} cannot be used ({error.strerror})"
            return _fail(words, text, UnavailableError.exit_code)
        if error.errno not in _FULL:
            raise
        _discard(sys.stdout)
        _say(f"the output cannot be written ({error.strerror}); make room for it")
        return UnavailableError.exit_code
    return code if isinstance(code, int) else 0


def _require_folder() -> None:
    """Raise UnavailableError where the working folder was removed meanwhile."""
    try:
        os.getcwd()  # noqa: PTH109 (Path.cwd() does the same, after an import)
    except FileNotFoundError:
        gone = "the folder you are in is gone; change to another"
        raise UnavailableError(gone) from None


def _discard(stream: TextIO) -> None:
    """Send to nowhere what was not written yet, and all that follows."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _fail(words: Sequence[str], text: str, code: int) -> int:
    """Say an error, to programs that asked for it in the one envelope; return `code`.

    A command writes its own envelope last, so that no other is there before.
    """
    if _wants_json(words):
        with suppress(OSError):
            print_json(_command_of(words), error_json(text, code))
            sys.stdout.flush()
    _say(text)
    return code


def _wants_json(words: Sequence[str]) -> bool:
    """Return whether ``--format json`` is among the words, right or wrong."""
    return "--format=json" in words or ("--format", "json") in pairwise(words)


def _command_of(words: Sequence[str]) -> str:
    """Return the words that name the command, as it names itself in an envelope."""
    named = takewhile(lambda word: not word.startswith("-"), words)
    return " ".join(islice(named, 2 if words[0] == "keys" else 1))


def _say(text: str) -> None:
    """Write an error: one line for programs, folded between words on a terminal."""
    text = f"wallflower: {text}"
    if sys.stderr.isatty():
        width = shutil.get_terminal_size().columns
        text = textwrap.fill(
            text, width, break_long_words=False, break_on_hyphens=False
        )
    with suppress(OSError):  # nobody may be left to read it
        sys.stderr.write(f"{text}\n")


def _one_line(message: str) -> str:
    """Fold a usage error; click suggests a near miss twice where typer does too."""
    sentences = dict.fromkeys(re.split(r"(?<=[.?!])\s+", " ".join(message.split())))
    return " ".join(sentences)
