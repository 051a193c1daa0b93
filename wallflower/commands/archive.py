"""``wallflower archive``: remove who took part from the record of a run."""

from __future__ import annotations

from typing import Annotated

import typer

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
            allowed = f"one that is over: `wallflower resume {directory}` ends it"
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
