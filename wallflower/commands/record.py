"""What is made of a run's record: ``wallflower export``, ``archive`` and ``report``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from wallflower.protocol.errors import command_on


def export(
    run: Annotated[
        str, typer.Argument(help="The run's directory, or its id.", metavar="RUN")
    ],
    form: Annotated[
        str, typer.Option("--format", help="csv, json or parquet.", metavar="NAME")
    ] = "csv",
    table: Annotated[
        str,
        typer.Option(
            help="rounds (every arm after every round), cohorts or differences; json "
            "has all.",
            metavar="NAME",
        ),
    ] = "rounds",
    output: Annotated[
        Path | None,
        typer.Option(help="The file; without it standard output.", metavar="FILE"),
    ] = None,
) -> None:
    """Write a run's history, round by round, for other programs; no person is in it."""
    from wallflower.output import json_text
    from wallflower.protocol.errors import InputError, UnavailableError
    from wallflower.protocol.files.private import write_output
    from wallflower.protocol.files.sections import one_of
    from wallflower.results import history as exporting
    from wallflower.results.page import load_run

    one_of("format", form, exporting.FORMATS)
    one_of("table", table, exporting.TABLES)
    if form == "parquet" and output is None:
        raise InputError("output", "none", "a file, for parquet: --output FILE")
    loaded = load_run(run)
    try:
        if form == "parquet":
            assert output is not None
            rows = exporting.flat_table(loaded.history, table)
            write_output(output, exporting.as_parquet(rows))
            return
        text = (
            exporting.as_csv(exporting.flat_table(loaded.history, table))
            if form == "csv"
            else json_text(
                "export",
                {
                    "run": loaded.result.run_id,
                    "head": loaded.result.head,
                    "test_mode": loaded.result.config.test_mode,
                    "missing": loaded.result.missing.as_json(loaded.result.winner),
                    "interval_of": loaded.result.interval_of,
                    **loaded.result.config.reward_range.as_json(),
                    **exporting.tables_of(loaded.history),
                },
            )
        )
        if output is not None:
            write_output(output, text.encode())
    except OSError as error:
        raise UnavailableError(
            f"{output} cannot be written ({error.strerror})"
        ) from None
    if output is None:
        typer.echo(text, nl=False)


_LOST = (
    "What can no longer be checked: who took part, which arm anybody was shown, and "
    "what nodes' ledgers say about it. Sums, decisions and the promise can."
)


def archive(
    run: Annotated[
        str, typer.Argument(help="The run's directory, or its id.", metavar="RUN")
    ],
) -> None:
    """Remove pseudonyms and names of nodes from a run that is over, for ever.

    The record is verified before. All files beside it are removed as well.
    """
    from wallflower.output import print_line
    from wallflower.protocol.errors import InputError, JournalError
    from wallflower.results.result import read_result
    from wallflower.results.run_folder import find_run, ledger_checks
    from wallflower.strategy.run.verify import verify
    from wallflower.strategy.store import archive as store
    from wallflower.strategy.store.journal import Journal

    directory = find_run(run)
    with Journal.resume(directory) as journal:
        if read_result(journal).finished is None:
            allowed = f"one that is over: `{command_on('resume', directory)}` ends it"
            raise InputError("run", str(directory), allowed)
        for check in (*verify(journal), *ledger_checks(journal)):
            if not check.holds:
                raise JournalError(
                    f"{directory} does not verify ({check.name}: {check.problems[0]}); "
                    "an archive would hide why"
                )
        head = store.archive(journal)
    print_line(f"{directory} is archived. {_LOST}")
    print_line(f"Keep its head: {head}")


def report(
    run: Annotated[
        str, typer.Argument(help="The run's directory, or its id.", metavar="RUN")
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            help="The file to write; by default report.html in the run's directory.",
            metavar="FILE",
        ),
    ] = None,
) -> None:
    """Write a run as one HTML page: verdict, promise, health; exit 3 if it fails."""
    from wallflower.commands.run import NOT_VERIFIED
    from wallflower.protocol.errors import UnavailableError
    from wallflower.protocol.files.private import write_anew, write_output
    from wallflower.results.page import content, fragment
    from wallflower.results.run_folder import find_run
    from wallflower.strategy.store.journal import Journal

    directory = find_run(run)
    path = directory / "report.html" if output is None else output
    with Journal.read(directory) as journal:
        shown = content(journal)
    page = fragment("report.html", shown).encode()
    try:
        if output is None:
            write_anew(path, page, mode=0o666)
        else:
            write_output(path, page)
    except OSError as error:
        elsewhere = "; --output FILE writes elsewhere" if output is None else ""
        raise UnavailableError(
            f"{path} cannot be written ({error.strerror}){elsewhere}"
        ) from None
    typer.echo(f"{shown['verdict'].headline} {path} ({len(page):,} bytes)")
    if not shown["holds"]:
        raise typer.Exit(NOT_VERIFIED)
