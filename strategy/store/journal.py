"""The record of a run: nothing is lost, nobody is counted twice.

One SQLite file (WAL) in the run directory. Every invitation is written *before* it is
sent; a finished round (sums, bounds, decision, state, guarantee) is one transaction. A
crash therefore leaves either the whole round or none of it, and `resume` knows everyone
who may have been asked. A lock keeps two servers from running the same run. Every
transaction adds to the chain (`strategy.store.chain`), so that changes made later show.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from wallflower.protocol.errors import ConfigError, JournalError, UnavailableError
from wallflower.protocol.files.private import private_directory
from wallflower.protocol.secure_sum.session import SERVER, Finding
from wallflower.strategy.config import (
    ExperimentConfig,
    differences,
    fingerprint_of,
)
from wallflower.strategy.store import chain
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
    NEXT_DRAW,
    NEXT_MEETING,
    OPEN_COHORTS,
    SCHEMA,
    SCHEMA_VERSION,
    dealing_row,
    losses_text,
    state_text,
    sum_text,
    views_text,
    write_findings,
)
from wallflower.strategy.store.store import FILE_NAME, LOCK_NAME, RunLock

_KEY_BYTES = 32  # of the key that cohort ids are made with


class Journal(JournalReader):
    """A run's record; opened for writing by one server, for reading by anyone.

    Use `create`, `resume` or `read`; all three give a context manager.
    """

    _state: Mapping[str, Any] | None = None  # of the policy, as the last round left it

    @classmethod
    def create(
        cls, run_dir: Path, run_id: str, config: ExperimentConfig, engine: str
    ) -> Self:
        """Start the record of a new run; a directory with a journal is refused."""
        try:
            private_directory(run_dir)
        except OSError as error:
            raise UnavailableError(
                f"run directory {run_dir} cannot be made ({error.strerror})"
            ) from None
        lock = RunLock(run_dir)
        if (run_dir / FILE_NAME).exists():
            lock.release()
            raise JournalError(
                f"{run_dir} already holds a run; `wallflower resume {run_dir}` goes on "
                "with it, another --run-dir starts a new one"
            )
        try:
            journal = cls(run_dir, lock, new=True)
            try:
                journal._found(run_id, config, engine)
            except BaseException:
                journal.close()
                raise
        except BaseException:
            lock.release()
            for leftover in (*run_dir.glob(FILE_NAME + "*"), run_dir / LOCK_NAME):
                if leftover.is_file():
                    leftover.unlink()
            with contextlib.suppress(OSError):  # it held something before
                run_dir.rmdir()
            raise
        return journal

    @classmethod
    def resume(cls, run_dir: Path, config: ExperimentConfig | None = None) -> Self:
        """Open a run for going on.

        Another config, a broken chain, or an older copy of the record is refused.
        """
        _check_present(run_dir)
        journal = cls._checked(run_dir, RunLock(run_dir), config)
        try:
            journal.check_whole()
        except BaseException:
            journal.close()
            raise
        return journal

    @classmethod
    def read(cls, run_dir: Path) -> Self:
        """Open a run for looking at it, also while a server works on it."""
        _check_present(run_dir)
        return cls._checked(run_dir, None, None)

    @classmethod
    def _checked(
        cls, run_dir: Path, lock: RunLock | None, config: ExperimentConfig | None
    ) -> Self:
        try:
            journal = cls(run_dir, lock)
            try:
                journal._check(config)
            except BaseException:
                journal.close()
                raise
        except BaseException:
            if lock is not None:
                lock.release()
            raise
        return journal

    def _found(self, run_id: str, config: ExperimentConfig, engine: str) -> None:
        with self.transaction() as database:
            for statement in (*SCHEMA.split(";")[:-1], chain.SCHEMA):
                database.execute(statement)
            database.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
            database.executemany(
                "INSERT INTO meta VALUES (?, ?)",
                [
                    ("run-id", run_id),
                    ("engine", engine),
                    ("config", config.canonical()),
                    ("fingerprint", config.fingerprint()),
                    ("created-at", repr(time.time())),
                    ("cohort-key", secrets.token_hex(_KEY_BYTES)),
                ],
            )
            chain.append(database, chain.FOUNDED)
        self._new = False

    # --- writing ---------------------------------------------------------------

    def meet(self, nodes: Mapping[str, Met]) -> None:
        """Write down how many users nodes have, and how many of them are left out."""
        with self.transaction() as database:
            meeting = database.execute(NEXT_MEETING).fetchone()[0]
            database.executemany(
                "INSERT INTO node VALUES (?, ?, ?, ?)",
                [(meeting, node_id, *met) for node_id, met in nodes.items()],
            )
            chain.append(database, chain.MET, [str(meeting)])

    def deal(self, record: DealingRecord) -> None:
        """Write down how a dealing ended."""
        with self.transaction() as database:
            database.execute(
                "INSERT INTO dealing VALUES (?, ?, ?, ?, ?, ?)", dealing_row(record)
            )
            chain.append(database, chain.DEALT, [record.dealing_id])

    def note_stopped(self, kind: str, number: int) -> None:
        """Write down that the run stopped at round `number`: waiting or paused."""
        with self.transaction() as database:
            chain.append(database, kind, [str(number)])

    def invite(self, cohorts: Sequence[CohortRecord]) -> None:
        """Write down who is about to be asked; all cohorts or none.

        They were drawn as one set of people: their draw has a number of its own.
        """
        with self.transaction() as database:
            draw = database.execute(NEXT_DRAW).fetchone()[0]
            database.executemany(
                "INSERT INTO cohort (cohort_id, round, batch, arm, attempt, size, "
                "spec, draw, state) VALUES (?, ?, ?, ?, ?, ?, ?, ?, 'invited')",
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
            database.executemany(
                "INSERT INTO invitation VALUES (?, ?, ?)",
                [
                    (cohort.cohort_id, node_id, json.dumps(users))
                    for cohort in cohorts
                    for node_id, users in cohort.users.items()
                ],
            )
            chain.append(
                database, chain.INVITED, [cohort.cohort_id for cohort in cohorts]
            )

    def give_back(self, cohort_id: str, nodes: Mapping[str, str]) -> None:
        """Write down whose users were not used, and why: they may be invited again.

        Once for a cohort, when it is over.
        """
        with self.transaction() as database:
            database.executemany(
                "INSERT INTO returned VALUES (?, ?, ?)",
                [(cohort_id, node_id, reason) for node_id, reason in nodes.items()],
            )
            chain.append(database, chain.RETURNED, [cohort_id])

    def void(
        self,
        cohort_id: str,
        reason: str,
        losses: Mapping[str, int] | None = None,
        findings: Sequence[Finding] = (),
    ) -> None:
        """Write down that a cohort ended without a sum, who caused it, who was lost."""
        with self.transaction() as database:
            changed = database.execute(
                "UPDATE cohort SET state = 'void', reason = ?, losses = ? "
                "WHERE cohort_id = ? AND state = 'invited'",
                (reason, losses_text(losses or {}), cohort_id),
            ).rowcount
            if changed != 1:
                raise JournalError(f"cohort {cohort_id} is not open in {self.path}")
            known = findings or (Finding("", SERVER, reason),)
            write_findings(database, cohort_id, known)
            chain.append(database, chain.VOID, [cohort_id])

    def void_open(self, reason: str) -> int:
        """Void every cohort that was under way; its users stay used."""
        with self.transaction() as database:
            under_way = [cohort_id for (cohort_id,) in database.execute(OPEN_COHORTS)]
            database.execute(
                "UPDATE cohort SET state = 'void', reason = ? WHERE state = 'invited'",
                (reason,),
            )
            for cohort_id in under_way:
                write_findings(database, cohort_id, [Finding("", SERVER, reason)])
            chain.append(database, chain.VOID, under_way)
            return len(under_way)

    def finish_round(self, record: RoundRecord, sums: Sequence[SumRecord]) -> str:
        """Write a finished round and its sums, all or nothing; give the new head.

        Of the policy's state only what changed since the round before is written.
        """
        if self._state is None and (last := self.last_round()) is not None:
            self._state = last.policy_state
        state = json.loads(json.dumps(record.policy_state))
        with self.transaction() as database:
            for result in sums:
                changed = database.execute(
                    "UPDATE cohort SET state = 'summed', result = ?, losses = ? "
                    "WHERE cohort_id = ? AND round = ? AND state = 'invited'",
                    (
                        sum_text(result),
                        losses_text(result.losses),
                        result.cohort_id,
                        record.number,
                    ),
                ).rowcount
                if changed != 1:
                    raise JournalError(
                        f"cohort {result.cohort_id} is not open in {self.path}"
                    )
                write_findings(database, result.cohort_id, result.findings)
            left = len(database.execute(OPEN_COHORTS).fetchall())
            if left:
                raise JournalError(f"round {record.number} has {left} open cohorts")
            database.execute(
                "INSERT INTO round VALUES (?, ?, ?, ?, ?)",
                (
                    record.number,
                    views_text(record.views),
                    state_text(self._state, state),
                    json.dumps(record.spent.as_json()),
                    record.finished,
                ),
            )
            chain.append(database, chain.SUMMED, [one.cohort_id for one in sums])
            head = chain.append(database, chain.ROUND, [str(record.number)])
        self._state = state
        return head

    def retire(self, record: Retirement) -> str:
        """Write down that somebody took an arm out by hand; give the new head."""
        with self.transaction() as database:
            database.execute(
                "INSERT INTO retired VALUES (?, ?, ?)",
                (record.arm, record.round_number, record.reason),
            )
            return chain.append(database, chain.RETIRED, [str(record.arm)])

    def note_limited(self, number: int, users: int) -> None:
        """Write down that round `number` can ask no more than `users` users."""
        with self.transaction() as database:
            chain.append(database, chain.LIMITED, [chain.limit_subject(number, users)])

    def note_resumed(self, number: int) -> None:
        """Write down that a server goes on with round `number`."""
        with self.transaction() as database:
            chain.append(database, chain.RESUMED, [str(number)])

    def _check(self, config: ExperimentConfig | None) -> None:
        version = self.rows("PRAGMA user_version")[0][0]
        if version != SCHEMA_VERSION:
            raise JournalError(
                f"{self.path} has schema {version}, this program reads "
                f"{SCHEMA_VERSION}: go on with it, or look at it, by the version of "
                "Wallflower that began it"
            )
        # Of the text as it was written: a later version may know more keys.
        text = self._meta("config")
        if fingerprint_of(text) != self._meta("fingerprint"):
            raise JournalError(f"the config in {self.path} was altered")
        try:
            recorded = self.config
        except ConfigError as error:
            raise JournalError(
                f"{self.path} has a config that this program does not read ({error}): "
                "go on with it, or look at it, by the version of Wallflower that began "
                "it"
            ) from None
        if config is not None and (changes := differences(recorded, config)):
            raise ConfigError(
                str(self.run_dir),
                "the run began with another config; changed: " + "; ".join(changes),
            )


def _check_present(run_dir: Path) -> None:
    if not (run_dir / FILE_NAME).is_file():
        raise JournalError(f"{run_dir} holds no run (no {FILE_NAME} in it)")
