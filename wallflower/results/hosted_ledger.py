"""A run's record beside the ledger of the nodes it hosts: do the two tell the same?

Engines that host their nodes keep one ledger in the run directory. It is written by the
users' side, before anything leaves a node, so it knows of answers that a shortened or
changed journal no longer has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from pathlib import Path

from wallflower.clients.node.ledger_reading import spends_of
from wallflower.protocol.numbers import counted
from wallflower.strategy.record.journal import Journal
from wallflower.strategy.run.verify import Check, checked

Spends = Mapping[tuple[str, str], tuple[str, ...]]  # cohort, node → users


def ledger_path(run_dir: Path) -> Path:
    """Where a hosted population keeps its spends."""
    return run_dir / "ledger.sqlite"


def hosted_spends(journal: Journal) -> Spends | None:
    """Give who spent by the hosted ledger; None where the nodes keep their own."""
    path = ledger_path(journal.run_dir)
    return spends_of(path, journal.run_id) if path.exists() else None


def ledger_checks(journal: Journal) -> tuple[Check, ...]:
    """Compare journal and hosted ledger; nothing where no ledger lies there."""
    spends = hosted_spends(journal)
    if spends is None:
        return ()
    # A server may go on meanwhile. It invites before anybody spends, so whoever spent
    # is in the record by now, if not in the record as it was when it was opened.
    with Journal.read(journal.run_dir) as latest:
        invited = {
            (cohort_id, node_id): frozenset(users)
            for cohort_id, node_id, users in latest.used()
        }
    return (
        checked(
            "the hosted ledger and the record tell the same",
            counted(sum(map(len, spends.values())), "spend"),
            _differences(journal, invited, spends),
        ),
    )


def _differences(
    journal: Journal, invited: Mapping[tuple[str, str], Set[str]], spends: Spends
) -> Iterator[str]:
    for (cohort_id, node_id), users in spends.items():
        where = f"cohort {cohort_id}, node {node_id}"
        if (cohort_id, node_id) not in invited:
            yield f"{where}: {len(users)} users spent, but the record invited nobody"
        elif others := set(users) - invited[cohort_id, node_id]:
            yield f"{where}: {len(others)} users spent whom the record did not invite"
    for cohort in journal.cohorts():
        if cohort.result is None:
            continue
        by_ledger = sum(
            len(spends.get((cohort.cohort_id, node_id), ()))
            for node_id in cohort.result.nodes
        )
        if by_ledger != cohort.result.survivors:
            yield (
                f"cohort {cohort.cohort_id}: {cohort.result.survivors} users in the "
                f"sum, {by_ledger} in the ledger"
            )
