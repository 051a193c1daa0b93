"""What a run may rely on wherever it is written down: one writer, all or nothing."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
from pathlib import Path

import pytest

from tests.strategy.store.test_journal import cohort, config, finished, summed
from wallflower.protocol.errors import ConfigError, JournalError, UnavailableError
from wallflower.protocol.secure_sum.session import Void
from wallflower.strategy.config import ExperimentConfig, PolicySettings
from wallflower.strategy.sections import StoreSettings
from wallflower.strategy.store.entries import DealingRecord, Met, Retirement
from wallflower.strategy.store.journal import Journal
from wallflower.strategy.store.run_store import is_held, requests_of
from wallflower.strategy.store.spool import StageEvent

SPAWN = multiprocessing.get_context("spawn")


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    return tmp_path / "run"


@pytest.fixture
def settings(store_url: str) -> ExperimentConfig:
    return config(store=StoreSettings(store_url))


@pytest.fixture
def run_id(tmp_path: Path) -> str:
    return f"r-{tmp_path.name}-{os.urandom(4).hex()}"


def test_a_whole_run_is_read_back_and_its_chain_holds(
    run_dir: Path, run_id: str, settings: ExperimentConfig
) -> None:
    with Journal.create(run_dir, run_id, settings, "local") as journal:
        journal.meet({"n0": Met(3, 1), "n1": Met(2)})
        journal.deal(DealingRecord("deal-1", 2, "", ("n0",), ("n0", "n1")))
        journal.invite([cohort("c1"), cohort("c2", arm=1)])
        journal.void("c2", "below-quorum")
        journal.give_back("c2", {"n0": "busy"})
        journal.invite([cohort("c3", arm=1, attempt=2)])
        head = journal.finish_round(finished(1), [summed("c1"), summed("c3")])
        journal.invite([cohort("c4", number=2)])
        assert journal.void_open("server-stopped") == 1
        journal.retire(Retirement(1, 2, "harm"))
    with Journal.read(run_dir) as journal:
        assert journal.run_id == run_id
        assert journal.config == settings
        states = [one.state for one in journal.cohorts()]
        assert states == ["summed", "void", "summed", "void"]
        assert journal.last_round() == finished(1)
        assert journal.cohorts()[0].result == summed("c1")
        assert journal.read_met() == {"n0": Met(3, 1), "n1": Met(2)}
        assert journal.count_asked() == {"c1": 2, "c2": 1, "c3": 2, "c4": 2}
        assert journal.count_participations() == {1: 7}
        assert journal.count_invited()["c1"] == {"n0": 1, "n1": 1}
        assert [one.dealing_id for one in journal.dealings()] == ["deal-1"]
        assert ("c1", "n1", ("c1-u1",)) in list(journal.used_after(0))
        assert journal.is_asked_since_last_round()
        assert head in [entry.link for entry in journal.entries()]
        assert list(journal.breaks()) == []


def test_a_run_is_gone_on_with_from_its_last_round(
    run_dir: Path, run_id: str, settings: ExperimentConfig
) -> None:
    with Journal.create(run_dir, run_id, settings, "local") as journal:
        journal.invite([cohort("c1")])
        journal.finish_round(finished(1), [summed("c1")])
    with Journal.resume(run_dir, settings) as journal:
        journal.invite([cohort("c2", number=2)])
        journal.finish_round(finished(2), [summed("c2")])
        assert [one.number for one in journal.rounds()] == [1, 2]
        assert list(journal.breaks()) == []
    other = config(store=settings.store, policy=PolicySettings(radius="paper"))
    with pytest.raises(ConfigError, match=r"policy\.radius"):
        Journal.resume(run_dir, other)


def test_a_step_that_fails_leaves_nothing(
    run_dir: Path, run_id: str, settings: ExperimentConfig
) -> None:
    with Journal.create(run_dir, run_id, settings, "local") as journal:
        journal.invite([cohort("c1")])
        head = journal.head
        with pytest.raises(JournalError):
            journal.invite([cohort("c2", arm=1), cohort("c1", arm=2)])
        assert journal.head == head
        assert journal.cohort_ids() == {"c1"}
        journal.invite([cohort("c2", arm=1)])


def test_a_reader_sees_the_run_as_it_was_and_may_not_write(
    run_dir: Path, run_id: str, settings: ExperimentConfig
) -> None:
    with Journal.create(run_dir, run_id, settings, "local") as journal:
        with Journal.read(run_dir) as reader:
            journal.invite([cohort("c1")])
            assert reader.cohort_ids() == set()
            with pytest.raises((JournalError, UnavailableError)):
                reader.invite([cohort("c2")])
        assert journal.cohort_ids() == {"c1"}


def test_a_directory_holds_one_run(
    run_dir: Path, run_id: str, settings: ExperimentConfig
) -> None:
    Journal.create(run_dir, run_id, settings, "local").close()
    with pytest.raises(JournalError, match="already holds a run"):
        Journal.create(run_dir, "other", settings, "local")
    with pytest.raises(JournalError, match="holds no run"):
        Journal.read(run_dir.parent)


def test_a_change_of_any_row_shows_in_the_chain(
    run_dir: Path, run_id: str, settings: ExperimentConfig
) -> None:
    with Journal.create(run_dir, run_id, settings, "local") as journal:
        journal.invite([cohort("c1")])
        with journal.database.transaction() as connection:
            connection.execute("UPDATE invitation SET users = '[]'")
        assert "its rows were changed" in next(journal.breaks())
        with pytest.raises(JournalError, match="was altered"):
            journal.check_whole()


# --- one writer -------------------------------------------------------------------


def test_one_server_at_a_time_works_on_a_run(
    run_dir: Path, run_id: str, settings: ExperimentConfig
) -> None:
    with Journal.create(run_dir, run_id, settings, "local"):
        assert is_held(run_dir)
        with pytest.raises(UnavailableError, match="another server works on"):
            Journal.resume(run_dir)
    assert not is_held(run_dir)
    Journal.resume(run_dir).close()


def test_a_standby_waits_until_the_other_server_is_done(
    run_dir: Path, run_id: str, settings: ExperimentConfig
) -> None:
    taken = list[bool]()

    def stand_by() -> None:
        with Journal.resume(run_dir, standby=True) as journal:
            journal.invite([cohort("c2", arm=1)])
            taken.append(is_over.is_set())

    is_over = threading.Event()
    thread = threading.Thread(target=stand_by)
    with Journal.create(run_dir, run_id, settings, "local") as journal:
        thread.start()
        journal.invite([cohort("c1")])
        is_over.set()
    thread.join()
    assert taken == [True]


def hold_until_killed(run_dir: Path) -> None:
    with Journal.resume(run_dir) as journal:
        journal.invite([cohort("c1")])
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_server_that_was_killed_holds_nobody_up(
    run_dir: Path, run_id: str, settings: ExperimentConfig
) -> None:
    Journal.create(run_dir, run_id, settings, "local").close()
    killed = SPAWN.Process(target=hold_until_killed, args=(run_dir,))
    killed.start()
    killed.join()
    with Journal.resume(run_dir, standby=True) as journal:
        assert journal.cohort_ids() == {"c1"}
        assert journal.void_open("server-stopped") == 1


# --- spool and requests -------------------------------------------------------------


async def test_a_spool_gives_back_what_a_restart_needs(
    run_dir: Path, run_id: str, settings: ExperimentConfig
) -> None:
    with contextlib.ExitStack() as stack:
        journal = stack.enter_context(
            Journal.create(run_dir, run_id, settings, "local")
        )
        spool = stack.enter_context(journal.open_spool())
        await spool.cohort("c1").enter_stage("contribute", b"state")
        part = spool.cohort("c1")
        part.note(StageEvent("n0", b"body"))
        part.note(StageEvent("n1", lost="late"))
        await spool.cohort("c2").finish(Void("below-quorum", "why"))
    with Journal.resume(run_dir) as journal, journal.open_spool() as spool:
        assert await spool.open_cohorts() == ["c1", "c2"]
        part = spool.cohort("c1")
        assert (await part.stage(), await part.snapshot()) == ("contribute", b"state")
        assert await part.events() == [
            StageEvent("n0", b"body"),
            StageEvent("n1", lost="late"),
        ]
        assert await spool.cohort("c2").outcome() == Void("below-quorum", "why")
        await part.forget()
        assert await spool.open_cohorts() == ["c2"]


def test_an_operator_asks_a_run_to_pause_and_to_retire_arms(
    run_dir: Path, run_id: str, settings: ExperimentConfig
) -> None:
    Journal.create(run_dir, run_id, settings, "local").close()
    requests = requests_of(run_dir)
    assert not requests.is_pause_requested()
    requests.request_pause()
    requests.request_pause()
    requests.request_retirement(1, "harm")
    requests.request_retirement(0, "dull")
    requests.request_retirement(1, "more harm")
    assert requests_of(run_dir).is_pause_requested()
    assert requests_of(run_dir).read_retirements() == {0: "dull", 1: "more harm"}
    requests.withdraw_pause()
    requests.withdraw_retirement(0)
    assert not requests.is_pause_requested()
    assert requests.read_retirements() == {1: "more harm"}
