"""The record of a run: nothing is lost, nobody is counted twice.

One SQLite file (WAL) in the run directory. Every invitation is written *before* it is
sent; a finished round (sums, bounds, decision, state, guarantee) is one transaction. A
crash therefore leaves either the whole round or none of it, and `resume` knows everyone
who may have been asked. A lock keeps two servers from running the same run.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Self

from protocol.errors import ConfigError, JournalError, UnavailableError
from strategy.config import (
    ExperimentConfig,
    config_from_canonical,
    differences,
    fingerprint_of,
)
from strategy.records import CohortRecord, RoundRecord, StoredCohort, SumRecord
from strategy.run_store import FILE_NAME, LOCK_NAME, RunLock, RunStore

SCHEMA_VERSION = 1

_SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
CREATE TABLE cohort (
    cohort_id TEXT PRIMARY KEY,
    round     INTEGER NOT NULL,
    batch     INTEGER NOT NULL,
    arm       INTEGER NOT NULL,
    attempt   INTEGER NOT NULL,
    size      INTEGER NOT NULL,
    spec      BLOB NOT NULL,
    asked_at  REAL NOT NULL,
    state     TEXT NOT NULL CHECK (state IN ('invited', 'summed', 'void')),
    reason    TEXT NOT NULL DEFAULT '',
    result    TEXT,
    UNIQUE (round, arm, attempt),
    CHECK ((state = 'summed') = (result IS NOT NULL))
) STRICT;
CREATE TABLE invitation (
    cohort_id TEXT NOT NULL REFERENCES cohort,
    node_id   TEXT NOT NULL,
    users     TEXT NOT NULL,
    PRIMARY KEY (cohort_id, node_id)
) STRICT, WITHOUT ROWID;
CREATE TABLE round (
    number       INTEGER PRIMARY KEY,
    finished_at  REAL NOT NULL,
    views        TEXT NOT NULL,
    policy_state TEXT NOT NULL,
    spent        TEXT NOT NULL,
    finished     TEXT
) STRICT;
"""


class Journal(RunStore):
    """A run's record; opened for writing by one server, for reading by anyone.

    Use `create`, `resume` or `read`; all three give a context manager.
    """

    @classmethod
    def create(
        cls, run_dir: Path, run_id: str, config: ExperimentConfig, engine: str
    ) -> Self:
        """Start the record of a new run; a directory with a journal is refused."""
        try:
            run_dir.mkdir(parents=True, exist_ok=True)
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
            journal = cls(run_dir, lock)
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
        """Open a run for going on; a config that differs from its own is refused."""
        _check_present(run_dir)
        return cls._checked(run_dir, RunLock(run_dir), config)

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
            for statement in _SCHEMA.split(";")[:-1]:
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
                ],
            )

    # --- writing ---------------------------------------------------------------

    def invite(self, cohorts: Sequence[CohortRecord]) -> None:
        """Write down who is about to be asked; all cohorts or none."""
        with self.transaction() as database:
            database.executemany(
                "INSERT INTO cohort (cohort_id, round, batch, arm, attempt, size, "
                "spec, asked_at, state) VALUES (?, ?, ?, ?, ?, ?, ?, ?, 'invited')",
                [
                    (
                        cohort.cohort_id,
                        cohort.round_number,
                        cohort.batch,
                        cohort.arm,
                        cohort.attempt,
                        cohort.size,
                        cohort.spec,
                        time.time(),
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

    def void(self, cohort_id: str, reason: str) -> None:
        """Write down that a cohort ended without a sum."""
        with self.transaction() as database:
            changed = database.execute(
                "UPDATE cohort SET state = 'void', reason = ? "
                "WHERE cohort_id = ? AND state = 'invited'",
                (reason, cohort_id),
            ).rowcount
            if changed != 1:
                raise JournalError(f"cohort {cohort_id} is not open in {self.path}")

    def void_open(self, reason: str) -> int:
        """Void every cohort that was under way; its users stay used."""
        with self.transaction() as database:
            return database.execute(
                "UPDATE cohort SET state = 'void', reason = ? WHERE state = 'invited'",
                (reason,),
            ).rowcount

    def finish_round(self, record: RoundRecord, sums: Sequence[SumRecord]) -> None:
        """Write a finished round and its sums; everything or nothing."""
        with self.transaction() as database:
            for result in sums:
                changed = database.execute(
                    "UPDATE cohort SET state = 'summed', result = ? "
                    "WHERE cohort_id = ? AND round = ? AND state = 'invited'",
                    (_sum_text(result), result.cohort_id, record.number),
                ).rowcount
                if changed != 1:
                    raise JournalError(
                        f"cohort {result.cohort_id} is not open in {self.path}"
                    )
            left = database.execute(
                "SELECT count(*) FROM cohort WHERE state = 'invited'"
            ).fetchone()[0]
            if left:
                raise JournalError(f"round {record.number} has {left} open cohorts")
            database.execute(
                "INSERT INTO round VALUES (?, ?, ?, ?, ?, ?)",
                (
                    record.number,
                    time.time(),
                    json.dumps(record.views),
                    json.dumps(record.policy_state),
                    json.dumps(record.spent),
                    record.finished,
                ),
            )

    # --- reading ---------------------------------------------------------------

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
        return float(self._meta("created-at"))

    @property
    def config(self) -> ExperimentConfig:
        """The config the run began with."""
        return config_from_canonical(self._meta("config"))

    def cohorts(self) -> list[StoredCohort]:
        """Every cohort ever asked, in order."""
        return [
            StoredCohort(*(*facts, _sum_from(facts[0], result)))
            for *facts, result in self.rows(
                "SELECT cohort_id, round, batch, arm, attempt, size, spec, state, "
                "reason, result FROM cohort ORDER BY round, arm, attempt"
            )
        ]

    def invitations(self) -> Iterator[tuple[str, str, tuple[str, ...]]]:
        """Every invitation ever sent: cohort, node, users."""
        for cohort_id, node_id, users in self.rows("SELECT * FROM invitation"):
            yield cohort_id, node_id, tuple(json.loads(users))

    def rounds(self) -> list[RoundRecord]:
        """Every finished round, in order."""
        return [
            RoundRecord(
                number,
                tuple(json.loads(views)),
                json.loads(state),
                json.loads(spent),
                finished,
            )
            for number, views, state, spent, finished in self.rows(
                "SELECT number, views, policy_state, spent, finished FROM round "
                "ORDER BY number"
            )
        ]

    def last_round(self) -> RoundRecord | None:
        """The round to go on from."""
        rounds = self.rounds()
        return rounds[-1] if rounds else None

    def _meta(self, key: str) -> str:
        rows = self.rows("SELECT value FROM meta WHERE key = ?", key)
        if not rows:
            raise JournalError(f'{self.path} has no "{key}"')
        return str(rows[0][0])

    def _check(self, config: ExperimentConfig | None) -> None:
        version = self.rows("PRAGMA user_version")[0][0]
        if version != SCHEMA_VERSION:
            raise JournalError(
                f"{self.path} has schema {version}, this program reads {SCHEMA_VERSION}"
            )
        # Of the text as it was written: a later version may know more keys.
        text = self._meta("config")
        if fingerprint_of(text) != self._meta("fingerprint"):
            raise JournalError(f"the config in {self.path} was altered")
        if config is not None and (changes := differences(self.config, config)):
            raise ConfigError(
                str(self.run_dir),
                "the run began with another config; changed: " + "; ".join(changes),
            )


def _check_present(run_dir: Path) -> None:
    if not (run_dir / FILE_NAME).is_file():
        raise JournalError(f"{run_dir} holds no run (no {FILE_NAME} in it)")


def _sum_text(result: SumRecord) -> str:
    return json.dumps(
        {
            # Text: JSON readers elsewhere take large integers for doubles.
            "released": None if result.released is None else str(result.released),
            "modulus": str(result.modulus),
            "total": str(result.total),
            "precision": result.precision,
            "survivors": result.survivors,
            "nodes": result.nodes,
        }
    )


def _sum_from(cohort_id: str, text: str | None) -> SumRecord | None:
    if text is None:
        return None
    value = json.loads(text)
    return SumRecord(
        cohort_id,
        None if value["released"] is None else int(value["released"]),
        int(value["modulus"]),
        int(value["total"]),
        value["precision"],
        value["survivors"],
        tuple(value["nodes"]),
    )
