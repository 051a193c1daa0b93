"""``wallflower run``, ``resume``, ``retire``, ``status``, ``verify``: its life."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wallflower.commands.options import EngineOptions, Format

if TYPE_CHECKING:
    from wallflower.results.result import RunResult

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

NOT_VERIFIED = 3


def run(
    experiment: Annotated[
        Path, typer.Argument(help="The experiment's TOML file.", metavar="FILE")
    ],
    engine: Annotated[
        str,
        typer.Option(help="local, simulation, deployment or fast.", metavar="NAME"),
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
    from wallflower.engines.run import engine_options, start_run
    from wallflower.output import check_format

    check_format(output)
    options = engine_options(option)
    done = start_run(experiment, engine, run_dir, options, until, page=page)
    _show("run", done, output)


def resume(
    run: _Run,
    option: EngineOptions = None,
    until: _Until = None,
    page: _Page = False,
    output: Format = "human",
) -> None:
    """Continue a run after Ctrl-C or a crash."""
    from wallflower.engines.run import engine_options, resume_run
    from wallflower.output import check_format

    check_format(output)
    done = resume_run(run, engine_options(option), until, page=page)
    _show("resume", done, output)


def pause(run: _Run) -> None:
    """Stop a run after the round under way; resume continues it."""
    from wallflower.engines.run import pause_run

    directory = pause_run(run)
    typer.echo(
        f"{directory} stops after the round under way; to go on: "
        f"wallflower resume {directory}"
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
    from wallflower.results.result import read_result
    from wallflower.results.run_folder import find_run
    from wallflower.strategy.store.journal import Journal

    check_format(output)
    directory = find_run(run)
    if output == "json":
        _show_json("status", directory)
        return
    with Journal.read(directory) as journal:
        journal.check_whole()
        result = read_result(journal)
    _show("status", result, output)


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
    from wallflower.output import check_format, print_json, print_line, print_text
    from wallflower.output import page as page_of_text
    from wallflower.protocol.rewards.seeded import TEST_MODE
    from wallflower.results.result import read_result
    from wallflower.results.run_folder import find_run, ledger_checks
    from wallflower.strategy.run.verify import verify as checks_of
    from wallflower.strategy.store.journal import Journal

    check_format(output)
    directory = find_run(run)
    with Journal.read(directory) as journal:
        checks = (*checks_of(journal, _heads(head)), *ledger_checks(journal))
        run_id, newest = journal.run_id, journal.head
        test_mode = journal.config.test_mode
        good = all(check.holds for check in checks)
        # Of a record that does not hold nothing is promised, but a test stays one.
        result = read_result(journal) if good else None
        promise = None if result is None else result.promise()
        promise = TEST_MODE if test_mode else promise
    if output == "json":
        print_json(
            "verify",
            {
                "run": run_id,
                "run_dir": str(directory),
                "holds": good,
                "head": newest,
                "test_mode": test_mode,
                "promise": promise,
                "missing": result and result.missing.as_json(result.winner),
                "checks": [
                    {
                        "name": check.name,
                        "holds": check.holds,
                        "looked_at": check.looked_at,
                        "problems": list(check.problems),
                    }
                    for check in checks
                ],
            },
        )
    else:
        for check in checks:
            mark = "ok   " if check.holds else "FAILS"
            print_line(f"{check.name} ({check.looked_at})", f"{mark} ")
            for problem in check.problems:
                print_line(problem, "      ")
        print_line(f"{run_id}, head {newest}")
        # Paragraphs: nobody reads, and no program wants, a line of 700 characters.
        out = page_of_text()
        if promise is not None:
            print_text(out, promise)
        if result is not None:
            print_text(out, result.verdict())
        print_line("The record holds." if good else "The record does NOT hold.")
    if not good:
        raise typer.Exit(NOT_VERIFIED)


def _heads(words: list[str] | None) -> list[str]:
    """Refuse what cannot be a head before anything is compared with it."""
    from wallflower.protocol.errors import InputError
    from wallflower.strategy.store.chain import LEAST_HEAD

    for word in words or ():
        if len(word) < LEAST_HEAD or set(word.lower()) - set("0123456789abcdef"):
            raise InputError("head", f'"{word}"', f"{LEAST_HEAD} to 64 hex digits")
    return words or []


def _show(command: str, result: RunResult, output: str) -> None:
    from wallflower.output import print_line
    from wallflower.results.view import print_result

    if output == "json":
        _show_json(command, Path(result.run_dir))
        return
    print_result(result)
    if command == "status" or result.askable.left_out:
        print_line(result.askable.describe())
    # Lines to be copied: a terminal folds them without breaking them.
    if result.finished is not None:
        typer.echo(f"More: wallflower report {result.run_dir}")
        typer.echo(f"Check: wallflower verify {result.run_dir}")
    elif _is_under_way(result):
        typer.echo(f"It is under way. Look on: wallflower watch {result.run_dir}")
        typer.echo(f"Stop after this round: wallflower pause {result.run_dir}")
    else:
        _require_resumable(Path(result.run_dir))
        typer.echo(f"To go on: wallflower resume {result.run_dir}")


def _is_under_way(result: RunResult) -> bool:
    """Return whether a server works on the run at this moment."""
    from wallflower.strategy.store.database import RunLock

    return RunLock.is_held(Path(result.run_dir))


def _show_json(command: str, directory: Path) -> None:
    """Write a run's state; one that cannot be resumed ends with the error's code."""
    from wallflower.output import error_json, print_json
    from wallflower.protocol.errors import WallflowerError
    from wallflower.results.history import history_json
    from wallflower.results.page import load_run

    loaded = load_run(directory)
    shown = {**loaded.result.as_json(), "history": history_json(loaded.history)}
    if loaded.result.finished is None and not _is_under_way(loaded.result):
        try:
            _require_resumable(directory)
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
