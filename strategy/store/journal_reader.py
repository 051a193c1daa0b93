"""Reading a run's record: what anybody who may open it can ask of it."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from wallflower.protocol.errors import JournalError, UnavailableError, command_on
from wallflower.protocol.files.sqlite import Closing
from wallflower.protocol.secure_sum.session import Finding
from wallflower.strategy.config import ExperimentConfig, config_from_canonical
from wallflower.strategy.store import archive_sql, chain, event_log, sql
from wallflower.strategy.store.database import Lease, Result, RunStore, cannot_open
from wallflower.strategy.store.entries import (
    Askable,
    CohortRecord,
    DealingRecord,
    Met,
    PrivacySpend,
    Retirement,
    RoundRecord,
)
from wallflower.strategy.store.journal_rows import (
    dealing_from,
    state_from,
    sum_from,
    views_from,
)

_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
# What reading a value raises that nobody could have written.
_UNREADABLE = (
    ValueError,
    TypeError,
    AttributeError,
    LookupError,
    ArithmeticError,
    RecursionError,
)


class JournalReader(Closing):
    """The questions that a journal answers, for one writer and any number of readers.

    A reader sees the record as it was when it was opened, whatever a server writes
    meanwhile; `told_bytes` is how long the events were a moment before.

    Parameters
    ----------
    store : RunStore
        Where the run is written down.
    lease : Lease | None
        The writer's; None opens for reading only.
    new : bool
        True until the run is founded: if that fails there is nothing to resume.
    """

    def __init__(
        self, store: RunStore, lease: Lease | None, *, new: bool = False
    ) -> None:
        self.run_dir = store.run_dir
        self.path = store.name
        self._store = store
        self._lease = lease
        self._new = new
        self._kept: dict[str, Any] = {}
        self.told_bytes = event_log.size(self.run_dir) if lease is None else None
        try:
            self.database = store.open_journal(self._explain, lease)
        except BaseException:
            if lease is not None:
                lease.release()
            raise

    def close(self) -> None:
        """Close the database and leave the run to another server."""
        self.database.close()
        if self._lease is not None:
            self._lease.release()

    async def call(self, work: Callable[..., Result], *arguments: object) -> Result:
        """Do something with the file on its own thread, and wait for it."""
        return await self.database.call(work, *arguments)

    def rows(self, query: str, *values: object) -> list[Any]:
        """Read all rows of a query."""
        return self.database.rows(query, *values)

    def _explain(
        self, error: Exception, no_room: bool
    ) -> JournalError | UnavailableError:
        if isinstance(error, OSError):
            return cannot_open(Path(self.path), error)
        if not no_room:
            damaged = getattr(error, "sqlite_errorcode", 0) & 0xFF in _DAMAGED
            advice = "; the file is damaged: restore a copy of it" if damaged else ""
            return JournalError(f"{self.path}: {error}{advice}")
        if self._lease is None:
            return UnavailableError(f"{self.path} cannot be read ({error})")
        advice = (
            "no run was begun: make room, then start it again"
            if self._new
            else "nothing of this step was kept: make room, then `"
            f"{command_on('resume', self.run_dir)}`"
        )
        return UnavailableError(f"{self.path} cannot be written ({error}); {advice}")

    def _read_once(self, name: str, read: Callable[[], Result]) -> Result:
        """Read something; a reader, to whom it stays as it is, keeps what it read."""
        if self._lease is not None:
            return read()
        if name not in self._kept:
            self._kept[name] = read()
        kept: Result = self._kept[name]
        return kept

    @property
    def run_id(self) -> str:
        """The run's name."""
        return self._meta("run-id")

    @property
    def engine(self) -> str:
        """The engine that carries the run."""
        return self._meta("engine")

    @property
    def created_at(self) -> float:
        """Seconds since 1970."""
        with self._reading("created-at"):
            return float(self._meta("created-at"))

    @property
    def cohort_key(self) -> bytes:
        """The key of the run's cohort ids; see `sign_cohort_id`."""
        with self._reading("cohort-key"):
            return bytes.fromhex(self._meta("cohort-key"))

    @property
    def config(self) -> ExperimentConfig:
        """The config the run began with."""
        return config_from_canonical(self._meta("config"))

    @property
    def head(self) -> str:
        """The last link of the chain: it stands for the whole record so far."""
        return self.last_entry().link

    def last_entry(self) -> chain.Entry:
        """Return the last link of the chain."""
        rows = self.rows(sql.LAST_ENTRY)
        if not rows:
            raise self._chainless()
        return chain.Entry(*rows[0])

    def entries(self) -> list[chain.Entry]:
        """Return every link of the chain, in order."""
        found = chain.entries(self.rows)
        if not found:
            raise self._chainless()
        return found

    def _chainless(self) -> JournalError:
        return JournalError(f"{self.path} has no chain: its entries were removed")

    @property
    def is_archived(self) -> bool:
        """Whether the names of nodes and people were removed."""
        return bool(self.rows(archive_sql.IS_ARCHIVED)[0][0])

    def count_unsalted(self) -> int:
        """Return how many entries no longer commit to the rows that they once had."""
        return chain.count_unsalted(self.rows)

    def breaks(self) -> Iterator[str]:
        """Say where the record is not what its chain says."""
        yield from chain.breaks(self.rows)
        # A damaged index hides rows from some questions and not from others.
        [(found,)] = self.rows(sql.DAMAGE)
        if found != "ok":
            yield f"SQLite finds it damaged ({' '.join(str(found).split())})"

    def check_chain(self) -> None:
        """Raise JournalError where the record is not what its chain says."""
        broken = next(self.breaks(), None)
        if broken is not None:
            raise JournalError(
                f"{self.path} was altered: {broken}. Nothing is built upon it; "
                f"`{command_on('verify', self.run_dir)}` shows all of it"
            )

    def check_whole(self) -> None:
        """Raise JournalError where the record was altered or its end is lost."""
        self.check_chain()
        heads, _ = event_log.read_heads(self.run_dir, self.told_bytes)
        lost = chain.unknown_heads(self.entries(), heads)
        if lost:
            raise JournalError(
                f"{self.path} has no entry {lost[0]}, which {event_log.FILE_NAME} "
                "tells of: it is an older copy. People asked since then have spent, so "
                "nothing is built upon it; put back the newest files, or begin a new "
                f"run. `{command_on('verify', self.run_dir)}` shows all of it"
            )

    def cohorts(self) -> Sequence[CohortRecord]:
        """Return every cohort ever asked, in order."""
        return self._read_once("cohorts", self._read_cohorts)

    def _read_cohorts(self) -> Sequence[CohortRecord]:
        stored = []
        for row in self.rows(sql.COHORTS):
            terms, end, (losses, result) = row[:7], row[7:10], row[10:]
            with self._reading(f"cohort {terms[0]}"):
                lost = json.loads(losses)
                found = sum_from(terms[0], lost, result)
            stored.append(CohortRecord(*(*terms, {}, *end, lost, found)))
        return stored

    def cohort_ids(self) -> set[str]:
        """Return the ids of every cohort ever asked."""
        return {cohort_id for cohort_id, _ in self.rows(sql.COHORT_STATES)}

    def check_answered(self, answered: Iterable[str]) -> None:
        """Raise JournalError where nodes answered a cohort that the journal lacks.

        Ids that this run did not make are no evidence: a node may invent them, and a
        run directory that was deleted must not block a new run of the same name.
        """
        known, key = self.cohort_ids(), self.cohort_key
        for cohort_id in sorted(set(answered) - known):
            if chain.is_own_id(key, cohort_id):
                raise JournalError(
                    f"{self.path} has no cohort {cohort_id}, which nodes have "
                    "answered: it is an older copy. People asked since then have "
                    "spent, so nobody is asked; put back the newest files, or begin a "
                    "new run"
                )

    def blame(self) -> dict[str, list[Finding]]:
        """Return what is known of who caused what, by cohort."""
        found: dict[str, list[Finding]] = {}
        for cohort_id, *facts in self.rows(sql.FINDINGS):
            found.setdefault(cohort_id, []).append(Finding(*facts))
        return found

    def dealings(self) -> list[DealingRecord]:
        """Return every dealing, in order."""
        rows = self.rows(sql.DEALINGS)
        with self._reading("a dealing"):
            return [dealing_from(row) for row in rows]

    def read_met(self) -> dict[str, Met]:
        """Return every node that ever described its users, with what it said last."""
        return {
            node_id: Met(*fields) for _, node_id, *fields in self.rows(sql.MEETINGS)
        }

    def count_askable(self) -> Askable:
        """Count who can still be asked, as the nodes said last."""
        most = self.config.privacy.max_participations
        often = self.count_participations()
        fully = sum(people for times, people in often.items() if times >= most)
        return Askable.count(self.read_met(), fully)

    def used(self) -> Iterator[tuple[str, str, tuple[str, ...]]]:
        """Return every invitation but those that were returned: cohort, node, users."""
        return self._select_invited(sql.USED)

    def used_after(self, number: int) -> Iterator[tuple[str, str, tuple[str, ...]]]:
        """Return the same of the rounds after round `number`."""
        return self._select_invited(sql.USED_AFTER, number)

    def count_asked(self) -> Counter[str]:
        """Return how many people were asked, by cohort; who was returned was not."""
        return Counter(dict(self.rows(sql.ASKED)))

    def count_participations(self) -> Mapping[int, int]:
        """Return how many people were asked how often; who was returned was not."""
        return self._read_once(
            "participations", lambda: dict(self.rows(sql.PARTICIPATIONS))
        )

    def returned(self) -> list[tuple[str, str, str]]:
        """Return every invitation that was returned: cohort, node, reason."""
        return self.rows(sql.RETURNED_USERS)

    def count_invited(self) -> Mapping[str, Mapping[str, int]]:
        """Return how many people every invitation ever sent is for, by cohort."""
        return self._read_once("invited", self._read_invited)

    def _read_invited(self) -> Mapping[str, Mapping[str, int]]:
        found: dict[str, dict[str, int]] = {}
        for cohort_id, node_id, people in self.rows(sql.SIZES):
            found.setdefault(cohort_id, {})[node_id] = people
        return found

    def invitations(self) -> Iterator[tuple[str, str, tuple[str, ...]]]:
        """Return every invitation ever sent: cohort, node, users."""
        return self._select_invited(sql.INVITATIONS)

    def retired(self) -> list[Retirement]:
        """Return every arm that was retired by hand, in the order of the arms."""
        return [Retirement(*row) for row in self.rows(sql.RETIRED_ARMS)]

    def meetings(self) -> dict[str, dict[str, Met]]:
        """Return what nodes said of their users, by the meeting's number."""
        found: dict[str, dict[str, Met]] = {}
        for meeting, node_id, *fields in self.rows(sql.MEETINGS):
            found.setdefault(str(meeting), {})[node_id] = Met(*fields)
        return found

    def count_rounds(self) -> int:
        """Return how many rounds are finished."""
        return int(self.rows(sql.COUNT_ROUNDS)[0][0])

    def rounds(self) -> list[RoundRecord]:
        """Return every finished round, in order; states share what did not change."""
        found: list[RoundRecord] = []
        rows = self.rows(sql.ROUNDS)
        with self._reading("a round"):
            for number, views, state, spent, finished in rows:
                before = found[-1].policy_state if found else None
                found.append(
                    RoundRecord(
                        number,
                        views_from(views),
                        state_from(before, state),
                        PrivacySpend.from_json(json.loads(spent)),
                        finished,
                    )
                )
        return found

    def last_round(self) -> RoundRecord | None:
        """Return the round to go on from."""
        return self._read_once("last-round", self._read_last_round)

    def _read_last_round(self) -> RoundRecord | None:
        rows = self.rows(sql.LAST_ROUND)
        if not rows:
            return None
        number, views, spent, finished = rows[0]
        state = self.states({number})[number]
        with self._reading("a round"):
            stated = PrivacySpend.from_json(json.loads(spent))
            return RoundRecord(number, views_from(views), state, stated, finished)

    def states(self, numbers: Set[int]) -> dict[int, Mapping[str, Any]]:
        """Return the policy's state after some of the finished rounds."""
        found: dict[int, Mapping[str, Any]] = {}
        state: Mapping[str, Any] | None = None
        rows = self.rows(sql.STATES)
        with self._reading("a round"):
            for number, text in rows:
                state = state_from(state, text)
                if number in numbers:
                    found[number] = state
        return found

    def is_asked_since_last_round(self) -> bool:
        """Return whether anything that changes what was spent came after it."""
        return bool(self.rows(sql.COUNT_ASKED_SINCE)[0][0])

    def _select_invited(
        self, query: str, *values: object
    ) -> Iterator[tuple[str, str, tuple[str, ...]]]:
        for cohort_id, node_id, users in self.rows(query, *values):
            with self._reading(f"an invitation of cohort {cohort_id}"):
                names = tuple(json.loads(users))
            yield cohort_id, node_id, names

    @contextmanager
    def _reading(self, what: str) -> Iterator[None]:
        """Raise JournalError for a value that nobody could have written."""
        try:
            yield
        except _UNREADABLE as error:
            raise JournalError(
                f"{self.path}: {what} cannot be read ({error}): the record was "
                f"altered; `{command_on('verify', self.run_dir)}` shows where"
            ) from None

    def _meta(self, key: str) -> str:
        rows = self.rows(sql.META, key)
        if not rows:
            raise JournalError(f'{self.path} has no "{key}"')
        return str(rows[0][0])
