"""Ledgers of hosted nodes that are lost, put back or locked, and runs that go on."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests.integration.test_local_engine import config
from wallflower.engines.local import run_local
from wallflower.engines.registry import EngineJob, find_engine
from wallflower.protocol.errors import JournalError, UnavailableError, WallflowerError
from wallflower.protocol.files.sections import RewardSettings
from wallflower.strategy.config import ExperimentConfig
from wallflower.strategy.sections import TransportSettings
from wallflower.strategy.store import events
from wallflower.strategy.store.journal import Journal

KINDS = ("memory", "grpc")


class StoppedError(Exception):
    """The test stops the run here."""


def experiment(kind: str) -> ExperimentConfig:
    """Arms that nobody can tell apart: the run is not over when it is stopped."""
    return config(
        transport=TransportSettings(kind=kind),
        rewards=RewardSettings(means=(0.5, 0.5, 0.5)),
    )


async def one_round(
    kind: str, run_dir: Path, then: Callable[[], object] | None = None
) -> None:
    """Run until a round is done; then stop, or do something and go on."""

    async def listen(event: events.Event) -> None:
        if isinstance(event, events.RoundFinished):
            if then is None:
                raise StoppedError
            then()

    await run_local(EngineJob(experiment(kind), run_dir, "test-run", listen))


async def stopped(kind: str, run_dir: Path) -> None:
    """Run a round of a new run, or of one that is there, and stop."""
    with contextlib.suppress(JournalError):
        Journal.create(run_dir, "test-run", experiment(kind), "local").close()
    with pytest.raises(StoppedError):
        await one_round(kind, run_dir)


def invited(run_dir: Path) -> int:
    with Journal.read(run_dir) as journal:
        return sum(len(users) for _, _, users in journal.invitations())


def delete(run_dir: Path) -> None:
    for path in run_dir.glob("ledger.sqlite*"):
        path.unlink()


def delete_with_counter(run_dir: Path) -> None:
    for path in run_dir.glob("ledger.*"):
        path.unlink()


def empty(run_dir: Path) -> None:
    with closing(sqlite3.connect(run_dir / "ledger.sqlite")) as database, database:
        for table in ("answer", "spend"):
            database.execute(f"DROP TRIGGER {table}_is_not_removed")
            database.execute(f"DELETE FROM {table}")


def replace(run_dir: Path) -> None:
    """Leave an empty file, as a clumsy restore would."""
    delete_with_counter(run_dir)
    (run_dir / "ledger.sqlite").touch()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lose", [delete, delete_with_counter, empty, replace])
async def test_a_run_does_not_go_on_with_a_ledger_that_was_lost(
    lose: Callable[[Path], None], kind: str, tmp_path: Path
) -> None:
    run_dir = tmp_path / "run"
    await stopped(kind, run_dir)
    before = invited(run_dir)
    lose(run_dir)
    with pytest.raises((JournalError, UnavailableError), match=r"ledger\.sqlite"):
        await one_round(kind, run_dir)
    assert invited(run_dir) == before


@pytest.mark.parametrize("files", ["ledger.sqlite*", "ledger.*"])
async def test_a_run_does_not_go_on_with_a_ledger_that_was_put_back(
    files: str, tmp_path: Path
) -> None:
    """Without its counter or with it: then the journal knows more than both."""
    run_dir, backup = tmp_path / "run", tmp_path / "backup"
    backup.mkdir()
    await stopped("memory", run_dir)
    for path in run_dir.glob(files):
        shutil.copy2(path, backup)
    await stopped("memory", run_dir)
    for path in run_dir.glob(files):
        path.unlink()
    for path in backup.iterdir():
        shutil.copy2(path, run_dir)
    with pytest.raises(WallflowerError, match=r"ledger\.sqlite"):
        await one_round("memory", run_dir)


async def test_the_simulation_engine_refuses_a_lost_ledger_before_it_starts(
    tmp_path: Path,
) -> None:
    run_dir = tmp_path / "run"
    await stopped("auto", run_dir)
    delete_with_counter(run_dir)
    job = EngineJob(experiment("auto"), run_dir, "test-run", events.ignore)
    with pytest.raises(JournalError, match="is gone"):
        await find_engine("simulation").run(job)


@contextmanager
def locked(run_dir: Path) -> Iterator[Callable[[], object]]:
    """Return a way to hold the ledger's lock, as a stuck backup or a shell would."""
    with closing(
        sqlite3.connect(run_dir / "ledger.sqlite", isolation_level=None)
    ) as it:
        yield lambda: it.execute("BEGIN IMMEDIATE")


@pytest.mark.parametrize("kind", KINDS)
async def test_nobody_is_invited_while_the_ledger_is_locked(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_dir = tmp_path / "run"
    monkeypatch.setattr("wallflower.clients.node.ledger._READY_MS", 10)
    monkeypatch.setattr("wallflower.clients.node.ledger._BUSY_MS", 10)
    await stopped(kind, run_dir)
    before = invited(run_dir)
    with locked(run_dir) as lock:
        lock()
        with pytest.raises(UnavailableError, match=r"ledger\.sqlite"):
            await one_round(kind, run_dir)
    assert invited(run_dir) == before
    await stopped(kind, run_dir)  # once it is free, the run goes on
    assert invited(run_dir) > before


@pytest.mark.parametrize("kind", KINDS)
async def test_a_lock_that_comes_between_two_rounds_burns_nobody(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wallflower.clients.node.ledger._READY_MS", 10)
    run_dir = tmp_path / "run"
    await stopped(kind, run_dir)
    counts: list[int] = []
    with locked(run_dir) as lock:

        def between() -> None:
            counts.append(invited(run_dir))
            lock()

        with pytest.raises(UnavailableError, match=r"ledger\.sqlite"):
            await one_round(kind, run_dir, between)
    assert counts == [invited(run_dir)]
