"""The record of a run: nothing is lost, nobody is counted twice.

One SQLite file (WAL) in the run directory. Every invitation is written *before* it is
sent; a finished round (sums, bounds, decision, state, guarantee) is one transaction. A
crash therefore leaves either the whole round or none of it, and `resume` knows everyone
who may have been asked. A lock keeps two servers from running the same run. Every
transaction adds to the chain (`strategy.store.chain`), so that changes made later show.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import secrets
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from wallflower.protocol.errors import (
    ConfigError,
    JournalError,
    UnavailableError,
    command_on,
)
from wallflower.protocol.files.private import private_directory
from wallflower.protocol.secure_sum.session import SERVER, Finding
from wallflower.strategy.config import (
    ExperimentConfig,
    differences,
    fingerprint_of,
)
from wallflower.strategy.store import chain, entries, sql
from wallflower.strategy.store.database import RunStore, Transaction, repeats
from wallflower.strategy.store.entries import (
    CohortRecord,
    DealingRecord,
    Met,
    Retirement,
    RoundRecord,
    SumRecord,
)
from wallflower.strategy.store.journal_reader import JournalReader
from wallflower.strategy.store.journal_rows import (
    dealing_row,
    state_text,
    sum_text,
)
from wallflower.strategy.store.run_store import has_run, new_store, store_of
from wallflower.strategy.store.spool import Spool

_KEY_BYTES = 32  # of the key that cohort ids are made with


class Journal(JournalReader):
    """A run's record; opened for writing by one server, for reading by anyone.

    Use `create`, `resume` or `read`; all three give a context manager.
    """

    _state: Mapping[str, Any] | None = None  # of the policy, as the last round left it

    @classmethod
    def create(
        cls, run_dir: Path, run_id: str, config: ExperimentConfig, engine: str
    ) -> Journal:
        """Start the record of a new run; a directory with a journal is refused."""
        try:
            private_directory(run_dir)
        except OSError as error:
            raise UnavailableError(
                f"run directory {run_dir} cannot be made ({error.strerror})"
            ) from None
        with contextlib.ExitStack() as stack:
            stack.callback(_remove_empty, run_dir)
            if has_run(run_dir):
                raise _second_run(run_dir)
            store = new_store(run_dir, config.store.url, run_id)
            store.prepare()
            lease = store.acquire()
            # Again: another process may have founded it before this one had the lease.
            if has_run(run_dir) or store.holds_run():
                lease.release()
                raise _second_run(run_dir)
            stack.callback(store.discard)
            journal = stack.enter_context(cls(store, lease, new=True))
            journal._found(run_id, config, engine)
            store.point()
            stack.pop_all()
            return journal

    @classmethod
    def resume(
        cls,
        run_dir: Path,
        config: ExperimentConfig | None = None,
        *,
        standby: bool = False,
    ) -> Journal:
        """Open a run for going on.

        Another config, a broken chain, or an older copy of the record is refused. A
        `standby` waits until no other server works on the run.
        """
        store = _require_run(run_dir)
        lease = store.acquire_when_free() if standby else store.acquire()
        with contextlib.ExitStack() as stack:
            journal = stack.enter_context(cls(store, lease))
            journal._check(config)
            journal.check_whole()
            stack.pop_all()
            return journal

    @classmethod
    def read(cls, run_dir: Path) -> Journal:
        """Open a run for looking at it, also while a server works on it."""
        with contextlib.ExitStack() as stack:
            journal = stack.enter_context(cls(_require_run(run_dir), None))
            journal._check(None)
            stack.pop_all()
            return journal

    def open_spool(self) -> Spool:
        """Open the spool of this run, for whoever writes the journal."""
        if self._lease is None:
            raise JournalError(f"{self.path} is open for reading only")
        open_tables = functools.partial(self._store.open_spool, self._lease)
        return Spool(self._store.spool_name, open_tables)

    @repeats
    def _found(self, run_id: str, config: ExperimentConfig, engine: str) -> None:
        with self.database.transaction() as connection:
            for statement in (*sql.JOURNAL_SCHEMA.split(";")[:-1], sql.SET_VERSION):
                connection.execute(statement)
            connection.executemany(
                sql.ADD_META,
                [
                    ("run-id", run_id),
                    ("engine", engine),
                    ("config", config.canonical()),
                    ("fingerprint", config.fingerprint()),
                    ("created-at", repr(time.time())),
                    ("cohort-key", secrets.token_hex(_KEY_BYTES)),
                ],
            )
            chain.append(connection, entries.FOUNDED)
        self._new = False

    # --- writing ---------------------------------------------------------------

    def note(self, kind: str, number: int) -> None:
        """Write down that the run stopped at round `number`, or goes on with it."""
        self._write(kind, number)

    def note_limited(self, number: int, users: int) -> None:
        """Write down that round `number` can ask no more than `users` users."""
        self._write(entries.LIMITED, chain.limit_subject(number, users))

    @repeats
    def meet(self, nodes: Mapping[str, Met]) -> None:
        """Write down how many users nodes have, and how many of them are left out."""
        with self.database.transaction() as connection:
            meeting = connection.execute(sql.NEXT_MEETING).fetchone()[0]
            connection.executemany(
                sql.ADD_NODE,
                [(meeting, node_id, *met) for node_id, met in nodes.items()],
            )
            chain.append(connection, entries.MET, [str(meeting)])

    def deal(self, record: DealingRecord) -> None:
        """Write down how a dealing ended."""
        rows = [dealing_row(record)]
        self._write(entries.DEALT, record.dealing_id, sql.ADD_DEALING, rows)

    @repeats
    def invite(self, cohorts: Sequence[CohortRecord]) -> None:
        """Write down who is about to be asked; all cohorts or none.

        They were drawn as one set of people: their draw has a number of its own.
        """
        with self.database.transaction() as connection:
            draw = connection.execute(sql.NEXT_DRAW).fetchone()[0]
            connection.executemany(
                sql.ADD_COHORT,
                [
                    (
                        cohort.cohort_id,
                        cohort.round_number,
                        cohort.batch,
                        cohort.arm,
                        cohort.attempt,
                        cohort.size,
                        cohort.spec,
                        draw,
                    )
                    for cohort in cohorts
                ],
            )
            connection.executemany(
                sql.ADD_INVITATION,
                [
                    (cohort.cohort_id, node_id, json.dumps(users))
                    for cohort in cohorts
                    for node_id, users in cohort.users.items()
                ],
            )
            invited = [cohort.cohort_id for cohort in cohorts]
            chain.append(connection, entries.INVITED, invited)

    def give_back(self, cohort_id: str, nodes: Mapping[str, str]) -> None:
        """Write down whose users were not used, and why: they may be invited again.

        Once for a cohort, when it is over.
        """
        rows = [(cohort_id, node_id, reason) for node_id, reason in nodes.items()]
        self._write(entries.RETURNED, cohort_id, sql.ADD_RETURNED, rows)

    @repeats
    def void(
        self,
        cohort_id: str,
        reason: str,
        losses: Mapping[str, int] | None = None,
        findings: Sequence[Finding] = (),
    ) -> None:
        """Write down that a cohort ended without a sum, who caused it, who was lost."""
        with self.database.transaction() as connection:
            values = reason, json.dumps(losses or {}, sort_keys=True), cohort_id
            self._end_cohort(connection, cohort_id, sql.VOID_COHORT, values)
            known = findings or (Finding("", SERVER, reason),)
            _write_findings(connection, cohort_id, known)
            chain.append(connection, entries.VOID, [cohort_id])

    @repeats
    def void_open(self, reason: str) -> int:
        """Void every cohort that was under way; its users stay used."""
        with self.database.transaction() as connection:
            under_way = [
                name for (name,) in connection.execute(sql.OPEN_COHORTS).fetchall()
            ]
            connection.execute(sql.VOID_OPEN, (reason,))
            for cohort_id in under_way:
                _write_findings(connection, cohort_id, [Finding("", SERVER, reason)])
            chain.append(connection, entries.VOID, under_way)
            return len(under_way)

    @repeats
    def finish_round(self, record: RoundRecord, sums: Sequence[SumRecord]) -> str:
        """Write a finished round and its sums, all or nothing; give the new head.

        Of the policy's state only what changed since the round before is written.
        """
        if self._state is None and (last := self.last_round()) is not None:
            self._state = last.policy_state
        state = json.loads(json.dumps(record.policy_state))
        with self.database.transaction() as connection:
            for result in sums:
                losses = json.dumps(result.losses, sort_keys=True)
                values = sum_text(result), losses, result.cohort_id, record.number
                self._end_cohort(connection, result.cohort_id, sql.SUM_COHORT, values)
                _write_findings(connection, result.cohort_id, result.findings)
            left = len(connection.execute(sql.OPEN_COHORTS).fetchall())
            if left:
                raise JournalError(f"round {record.number} has {left} open cohorts")
            connection.execute(
                sql.ADD_ROUND,
                (
                    record.number,
                    json.dumps([dataclasses.asdict(view) for view in record.views]),
                    state_text(self._state, state),
                    json.dumps(record.spent.as_json()),
                    record.finished,
                ),
            )
            chain.append(connection, entries.SUMMED, [one.cohort_id for one in sums])
            head = chain.append(connection, entries.ROUND, [str(record.number)])
        self._state = state
        return head

    def retire(self, record: Retirement) -> str:
        """Write down that somebody took an arm out by hand; give the new head."""
        rows = [(record.arm, record.round_number, record.reason)]
        return self._write(entries.RETIRED, record.arm, sql.ADD_RETIRED, rows)

    @repeats
    def _write(
        self,
        kind: str,
        subject: object,
        statement: str = "",
        rows: Sequence[Sequence[object]] = (),
    ) -> str:
        """Write rows and the entry that commits to them; give the new head."""
        with self.database.transaction() as connection:
            if rows:
                connection.executemany(statement, rows)
            return chain.append(connection, kind, [str(subject)])

    def _end_cohort(
        self,
        connection: Transaction,
        cohort_id: str,
        statement: str,
        values: Sequence[object],
    ) -> None:
        if connection.execute(statement, values).rowcount != 1:
            raise JournalError(f"cohort {cohort_id} is not open in {self.path}")

    def _check(self, config: ExperimentConfig | None) -> None:
        version = self.rows(sql.VERSION)[0][0]
        if version == 0:
            advice = "restore a copy of it, or begin a run in another folder"
            raise JournalError(f"{self.path} is empty; {advice}")
        if version != sql.SCHEMA_VERSION:
            raise JournalError(
                f"{self.path} has schema {version}, this program reads "
                f"{sql.SCHEMA_VERSION}: go on with it, or look at it, by the version "
                "of Wallflower that began it"
            )
        # Of the text as it was written: a later version may know more keys.
        text = self._meta("config")
        if fingerprint_of(text) != self._meta("fingerprint"):
            raise JournalError(f"the config in {self.path} was altered")
        try:
            recorded = self.config
        except ConfigError as error:
            raise JournalError(
                f"{self.path} has a config that this program does not read ({error}). "
                "Use the version of Wallflower that began it"
            ) from None
        if config is not None and (changes := differences(recorded, config)):
            raise ConfigError(
                str(self.run_dir),
                "the run began with another config; changed: " + "; ".join(changes),
            )


def _second_run(run_dir: Path) -> JournalError:
    return JournalError(
        f"{run_dir} already holds a run; `{command_on('resume', run_dir)}` goes on "
        "with it, another --run-dir starts a new one"
    )


def _remove_empty(run_dir: Path) -> None:
    with contextlib.suppress(OSError):  # it holds something
        run_dir.rmdir()


def _require_run(run_dir: Path) -> RunStore:
    store = store_of(run_dir)
    if not store.holds_run():
        raise JournalError(f"{run_dir} holds no run ({store.name} is not there)")
    return store


def _write_findings(
    connection: Transaction, cohort_id: str, findings: Sequence[Finding]
) -> None:
    connection.executemany(
        sql.ADD_FINDING,
        [(cohort_id, one.party, one.kind, one.word) for one in findings],
    )
