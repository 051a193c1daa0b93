"""``wallflower run``, ``resume``, ``retire``, ``status``, ``verify``: its life."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wallflower.commands.options import EngineOptions, Format
from wallflower.protocol.errors import command_on

if TYPE_CHECKING:
    from wallflower.results.page import Run

_Run = Annotated[
    str, typer.Argument(help="The run's directory, or its id.", metavar="RUN")
]

_Until = Annotated[
    str | None,
    typer.Option(help="Begin no round after this time of day.", metavar="HH:MM"),
]

_Page = Annotated[
    bool, typer.Option("--page", help="Show the run in a browser while it goes on.")
]

_Standby = Annotated[
    bool,
    typer.Option("--standby", help="Wait until no other server works on the run."),
]

NOT_VERIFIED = 3


def run(
    experiment: Annotated[
        Path, typer.Argument(help="The experiment's TOML file.", metavar="FILE")
    ],
    engine: Annotated[
        str,
        typer.Option(
            help="local, simulation, deployment, serve or fast.", metavar="NAME"
        ),
    ] = "local",
    run_dir: Annotated[
        Path | None,
        typer.Option(
            help="Where the record goes; by default runs/<id>.", metavar="FOLDER"
        ),
    ] = None,
    option: EngineOptions = None,
    until: _Until = None,
    page: _Page = False,
    output: Format = "human",
) -> None:
    """Run a private experiment to its end, with a live view."""
    from wallflower import api
    from wallflower.engines.run import engine_options
    from wallflower.output import check_format

    check_format(output)
    done = api.run(
        experiment,
        engine=engine,
        run_dir=run_dir,
        options=dict(engine_options(option)),
        until=until,
        page=page,
    )
    _show("run", done, output)


def resume(
    run: _Run,
    option: EngineOptions = None,
    until: _Until = None,
    page: _Page = False,
    standby: _Standby = False,
    output: Format = "human",
) -> None:
    """Continue a run after Ctrl-C or a crash."""
    from wallflower import api
    from wallflower.engines.run import engine_options
    from wallflower.output import check_format

    check_format(output)
    options = dict(engine_options(option))
    resumed = api.resume(run, options=options, until=until, page=page, standby=standby)
    _show("resume", resumed, output)


def pause(run: _Run) -> None:
    """Stop a run after the round under way; resume continues it."""
    from wallflower.engines.run import pause_run

    directory = pause_run(run)
    typer.echo(
        f"{directory} stops after the round under way; to go on: "
        f"{command_on('resume', directory)}"
    )


def retire(
    run: _Run,
    arm: Annotated[str, typer.Argument(help="The arm's name.", metavar="ARM")],
    reason: Annotated[
        str, typer.Option(help="Why; it stays in the record.", metavar="TEXT")
    ],
) -> None:
    """Take an arm out by hand: it harms people, or cannot be offered any more.

    A run under way retires it when its round is over, another one at once. The result
    is then the best of the arms that are left.
    """
    from wallflower.engines.run import retire_arm

    typer.echo(retire_arm(run, arm, reason))


def status(run: _Run, output: Format = "human") -> None:
    """Show where a run stands; it may be under way."""
    from wallflower.output import check_format
    from wallflower.results.page import load_run

    check_format(output)
    _show("status", load_run(run), output)


def verify(
    run: _Run,
    head: Annotated[
        list[str] | None,
        typer.Option(
            help="A head printed earlier: the record must still have it.",
            metavar="HASH",
        ),
    ] = None,
    output: Format = "human",
) -> None:
    """Replay a run's journal and recompute everything it claims; exit 3 if it fails."""
    from wallflower import api
    from wallflower.output import check_format, print_json, print_line, print_text
    from wallflower.output import page as page_of_text

    check_format(output)
    found = api.verify(run, head or ())
    if output == "json":
        print_json("verify", found.summary)
    else:
        for check in found.checks:
            mark = "ok   " if check.holds else "FAILS"
            print_line(f"{check.name} ({check.looked_at})", f"{mark} ")
            for problem in check.problems:
                print_line(problem, "      ")
        print_line(f"{found.run_id}, head {found.head}")
        # Paragraphs: nobody reads, and no program wants, a line of 700 characters.
        out = page_of_text()
        if found.promise is not None:
            print_text(out, found.promise)
        if found.result is not None:
            print_text(out, found.result.verdict())
        print_line(found.verdict)
    if not found.holds:
        raise typer.Exit(NOT_VERIFIED)


def _show(command: str, loaded: Run, output: str) -> None:
    from wallflower.output import print_line
    from wallflower.results.view import print_result

    result = loaded.result
    if output == "json":
        _show_json(command, loaded)
        return
    print_result(result)
    known = result.config.visitors is None
    if (command == "status" and known) or result.askable.left_out:
        print_line(result.askable.describe())
    # Lines to be copied: a terminal folds them without breaking them.
    if result.finished is not None:
        typer.echo(f"More: {command_on('report', result.run_dir)}")
        typer.echo(f"Check: {command_on('verify', result.run_dir)}")
    elif _is_under_way(loaded):
        typer.echo(f"It is under way. Look on: {command_on('watch', result.run_dir)}")
        typer.echo(f"Stop after this round: {command_on('pause', result.run_dir)}")
    else:
        _require_resumable(loaded.path)
        typer.echo(f"To go on: {command_on('resume', result.run_dir)}")


def _is_under_way(loaded: Run) -> bool:
    """Return whether a server works on the run at this moment."""
    from wallflower.strategy.store.run_store import is_held

    return is_held(loaded.path)


def _show_json(command: str, loaded: Run) -> None:
    """Write a run's state; one that cannot be resumed ends with the error's code."""
    from wallflower.output import error_json, print_json
    from wallflower.protocol.errors import WallflowerError
    from wallflower.results.history import history_json

    shown = {**loaded.result.as_json(), "history": history_json(loaded.history)}
    if loaded.result.finished is None and not _is_under_way(loaded):
        try:
            _require_resumable(loaded.path)
        except WallflowerError as error:
            print_json(command, {**shown, **error_json(str(error), error.exit_code)})
            typer.echo(f"wallflower: {error}", err=True)
            raise typer.Exit(error.exit_code) from None
    print_json(command, shown)


def _require_resumable(directory: Path) -> None:
    """Raise what `resume` would refuse the run for, whose record is whole."""
    from wallflower.results.run_folder import check_hosted_ledger
    from wallflower.strategy.store.journal import Journal

    with Journal.read(directory) as journal:
        check_hosted_ledger(journal)
