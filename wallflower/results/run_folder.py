"""A run's folder: where it is, whether the run can continue from it, and its ledger.

Engines that host their nodes keep one ledger in the run directory. It is written by the
users' side, before anything leaves a node. So it knows of answers that a shortened or
changed journal no longer has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from wallflower.clients.node.ledger_tables import read_spends
from wallflower.protocol.errors import JournalError, WallflowerError, command_on
from wallflower.protocol.numbers import counted
from wallflower.results.cohorts import CohortRow
from wallflower.strategy.run.verify import Check, run_check
from wallflower.strategy.store.journal import Journal
from wallflower.strategy.store.run_store import has_run
from wallflower.strategy.store.seat_register import SeatRegister

Spends = Mapping[tuple[str, str], tuple[str, ...]]  # cohort, node → users
HOSTING = ("local", "simulation")  # the engines that keep a ledger for their nodes
_NAME = "the hosted ledger and the record tell the same"


def ledger_path(run_dir: Path, shared: Path | None = None) -> Path:
    """Where a hosted population keeps its spends: beside the run, or for all runs."""
    return run_dir / "ledger.sqlite" if shared is None else shared


def _path_of(journal: Journal) -> Path:
    return ledger_path(journal.run_dir, journal.config.nodes.ledger)


def _describe_gone(journal: Journal) -> str:
    """Say that a ledger is gone which must have been there, and what to do, if so."""
    gone = (
        not journal.is_archived
        and journal.engine in HOSTING
        and not _path_of(journal).exists()
        and any(journal.invitations())
    )
    if not gone:
        return ""
    return (
        f"ledger {_path_of(journal)} is gone, although {journal.run_dir} "
        "has invitations: what their users spent is not known any more. Restore it, or "
        "begin a new run with other users"
    )


def _hosted_spends(journal: Journal) -> Spends | None:
    """Return who spent by the hosted ledger; None where the nodes keep their own."""
    if gone := _describe_gone(journal):
        raise JournalError(gone)
    if journal.is_archived:  # its names are no ledger's any more
        return None
    path = _path_of(journal)
    return read_spends(path, journal.run_id) if path.exists() else None


def ledger_checks(journal: Journal) -> tuple[Check, ...]:
    """Compare journal and hosted ledger; nothing where nodes keep their own."""
    if gone := _describe_gone(journal):
        return (Check(_NAME, "no ledger", (gone,)),)
    spends = _hosted_spends(journal)
    if spends is None:
        return ()
    many = counted(sum(map(len, spends.values())), "spend")
    return (run_check(_NAME, many, _differences(journal, spends)),)


def check_hosted_ledger(journal: Journal) -> None:
    """Raise JournalError where the ledger is gone, or knows less than the journal."""
    if gone := _describe_gone(journal):
        raise JournalError(gone)
    for check in ledger_checks(journal):
        if not check.holds:
            raise JournalError(
                f"ledger {_path_of(journal)} does not fit the journal: "
                f"{check.problems[0]}; restore it, or begin a new run with other users"
            )


def _differences(journal: Journal, spends: Spends) -> Iterator[str]:
    # A server may go on meanwhile. It invites before anybody spends, so whoever spent
    # is in the record by now, if not in the record as it was when it was opened.
    with Journal.read(journal.run_dir) as latest:
        invited = {
            (cohort_id, node_id): frozenset(users)
            for cohort_id, node_id, users in latest.used()
        }
    for (cohort_id, node_id), users in spends.items():
        where = f"cohort {cohort_id}, node {node_id}"
        if (cohort_id, node_id) not in invited:
            yield f"{where}: {len(users)} users spent, but the record invited nobody"
        elif others := set(users) - invited[cohort_id, node_id]:
            yield f"{where}: {len(others)} users spent whom the record did not invite"
    seated = {one.cohort_id for one in SeatRegister(journal.database).seated()}
    spent_in: Counter[str] = Counter()
    for (cohort_id, _), users in spends.items():
        spent_in[cohort_id] += len(users)
    for cohort in journal.cohorts():
        if cohort.result is None:
            continue
        if cohort.cohort_id in seated:  # whoever did not answer has spent as well
            by_ledger = min(spent_in[cohort.cohort_id], cohort.result.survivors)
        else:
            by_ledger = sum(
                len(spends.get((cohort.cohort_id, node_id), ()))
                for node_id in cohort.result.nodes
            )
        if by_ledger != cohort.result.survivors:
            yield (
                f"cohort {cohort.cohort_id}: {cohort.result.survivors} users in the "
                f"sum, {by_ledger} in the ledger"
            )


RUNS = Path("runs")


@dataclass(frozen=True, slots=True)
class Unfinished:
    """The round that is under way or was cut short: what it may have cost.

    Attributes
    ----------
    invited : people who were asked and may have answered.
    spent : those of them whose spend the hosted ledger has; None where nodes keep
        their own ledgers.
    """

    invited: int
    spent: int | None

    @property
    def sentence(self) -> str:
        """Say what it may have cost, or nothing."""
        if not self.invited:
            return ""
        known = (
            ""
            if self.spent is None
            else f"; the hosted ledger says that {self.spent:,} did"
        )
        some = "1 person was" if self.invited == 1 else f"{self.invited:,} people were"
        return (
            f" {some} invited to a round that is not finished: who of them answered "
            f"has spent this too{known}."
        )


def read_unfinished(
    journal: Journal, cohorts: Sequence[CohortRow], rounds: int
) -> Unfinished:
    """Count who was asked in a round that is not finished, and who of them spent."""
    cut = {row.cohort for row in cohorts if row.round > rounds}
    if not cut:
        return Unfinished(0, None)
    invited = {
        (node_id, user)
        for _, node_id, users in journal.used_after(rounds)
        for user in users
    }
    spends = _hosted_spends(journal) if invited else None
    if spends is None:
        return Unfinished(len(invited), None)
    known = {
        (node_id, user)
        for (cohort_id, node_id), users in spends.items()
        for user in users
        if cohort_id in cut
    }
    return Unfinished(len(invited), len(known))


def find_run(run: str) -> Path:
    """Find a run by its directory, or by its id below ``runs/``."""
    for directory in (Path(run), RUNS / run):
        if has_run(directory):
            return directory
    found = [path for path in RUNS.glob("*") if has_run(path)]
    known = sorted(found, key=lambda path: path.stat().st_mtime)
    there = (
        f"the latest in {RUNS}: {known[-1].name}"
        if known
        else "`run` prints where it is"
    )
    raise JournalError(
        f"no run {run}: neither {run} nor {RUNS / run} has a journal; {there}"
    )


def check_resumable(journal: Journal) -> None:
    """Raise JournalError or UnavailableError for what `resume` would refuse."""
    journal.check_whole()
    check_hosted_ledger(journal)


def advise(directory: Path) -> str:
    """Say how to go on with a run, or why it cannot be resumed as it lies there."""
    try:
        with Journal.read(directory) as journal:
            check_resumable(journal)
    except WallflowerError as error:
        return f"it cannot be resumed as it is: {error}"
    return f"to go on: {command_on('resume', directory)}"
