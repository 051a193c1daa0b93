"""``wallflower export``: a run's rows for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


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
    """Return a run's per-round history to other programs; no person is in it."""
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
