"""Accept a ledger that was moved or restored: ``python -m clients.adopt_ledger HOME``.

For the node's owner, after a new machine or a restored backup. What the ledger does not
know of is forgotten: users may be asked beyond their budget for what was answered since
the copy was made, and where the old copy lives on, twice from then on.
"""

from __future__ import annotations

import argparse
import contextlib
import sqlite3
import sys
from collections.abc import Sequence
from pathlib import Path

from wallflower.clients.node.rollback_counter import RollbackCounter, TransactionChain


def adopt(ledger: Path, counter: Path) -> None:
    """Make the counter fit the ledger as it is."""
    address = f"{ledger.resolve().as_uri()}?mode=rw"
    with contextlib.closing(sqlite3.connect(address, uri=True)) as database:
        TransactionChain(database, RollbackCounter(counter)).adopt()


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line and adopt."""
    parser = argparse.ArgumentParser(prog="adopt_ledger", description=__doc__)
    parser.add_argument("home", type=Path, help="the node's home")
    parser.add_argument("--counter", type=Path, help="the folder of its counter")
    given = parser.parse_args(arguments)
    folder = given.home if given.counter is None else given.counter
    try:
        adopt(given.home / "ledger.sqlite", folder / "ledger.counter")
    except (OSError, sqlite3.Error) as error:
        print(f"adopt_ledger: {given.home}: {error}", file=sys.stderr)
        return 4
    print("adopted; destroy every other copy of this ledger")
    return 0


if __name__ == "__main__":
    sys.exit(main())
