"""How to go on is said only where going on is possible."""

from __future__ import annotations

import contextlib
import shlex
import shutil
import sqlite3
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.damage.judge import Ended, say
from tests.support.damage.specimens import EXPERIMENT, make_specimens
from tests.support.run_fixtures import command, environment, wallflower, write

ADVICE = "to go on: wallflower resume"


@pytest.fixture(scope="module")
def specimens(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return make_specimens(tmp_path_factory.mktemp("specimens"))


@pytest.fixture
def killed(specimens: tuple[Path, Path], tmp_path: Path) -> Path:
    """A copy of a run whose server was killed in its second round."""
    return Path(shutil.copytree(specimens[1], tmp_path / "run"))


def advises(said: Ended) -> bool:
    return ADVICE in (said.text + said.errors).lower()


def people_on_page(run_dir: Path) -> list[str]:
    return [
        line for line in say("watch", run_dir).text.splitlines() if "People" in line
    ]


def lose_spend(run_dir: Path) -> None:
    """Take away a spend of a cohort that has its sum."""
    with contextlib.closing(sqlite3.connect(run_dir / "ledger.sqlite")) as database:
        database.execute("DROP TRIGGER spend_is_not_removed")
        database.execute("DELETE FROM spend WHERE number = 1")
        database.commit()


def lose_ledger(run_dir: Path) -> None:
    (run_dir / "ledger.sqlite").unlink()


def empty_counter(run_dir: Path) -> None:
    (run_dir / "ledger.counter").write_bytes(b"")


def break_chain(run_dir: Path) -> None:
    with contextlib.closing(sqlite3.connect(run_dir / "journal.sqlite")) as database:
        database.execute("UPDATE cohort SET size = size + 1")
        database.commit()


UNMENDABLE: dict[str, Callable[[Path], None]] = {
    "ledger gone": lose_ledger,
    "spend gone": lose_spend,
    "counter emptied": empty_counter,
    "record altered": break_chain,
}


@pytest.mark.parametrize("what", UNMENDABLE)
def test_a_refused_resume_advises_no_resume(what: str, killed: Path) -> None:
    UNMENDABLE[what](killed)
    said = say("resume", killed)
    assert said.code in (3, 4)
    assert not advises(said)


@pytest.mark.parametrize("what", ["ledger gone", "spend gone", "record altered"])
def test_status_advises_no_resume_that_would_be_refused(
    what: str, killed: Path
) -> None:
    assert advises(say("status", killed))
    UNMENDABLE[what](killed)
    said = say("status", killed)
    assert (said.code, advises(said)) == (3, False)


def test_retiring_an_arm_advises_no_resume_that_would_be_refused(killed: Path) -> None:
    lose_ledger(killed)
    said = say("retire", killed)
    assert said.code == 0
    assert "it cannot be resumed as it is: ledger" in said.text
    assert not advises(said)


def test_a_page_advises_no_resume_that_would_be_refused(killed: Path) -> None:
    assert "wallflower resume" in say("watch", killed).text
    lose_ledger(killed)
    said = say("watch", killed)
    assert "it cannot go on as it is" in said.text
    assert "wallflower resume" not in said.text


def test_a_stopped_run_shows_the_records_counts(killed: Path) -> None:
    """Events may be lost; the record knows who was asked."""
    whole = people_on_page(killed)
    path = killed / "events.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:3]))
    assert people_on_page(killed) == whole != []


@pytest.mark.slow  # several processes
def test_a_run_that_ran_out_of_room_says_how_to_go_on_and_does(tmp_path: Path) -> None:
    """No file may grow beyond 250 blocks: there is room to begin."""
    text = EXPERIMENT.replace("count = 6", "count = 60")
    words = command("run", write(tmp_path, text), "--run-dir", tmp_path / "run")
    done = subprocess.run(
        ["sh", "-c", f"ulimit -f 250; exec {shlex.join(words)}"],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert (done.returncode, ADVICE in done.stderr) == (4, True), done.stderr
    assert wallflower("resume", tmp_path / "run", cwd=tmp_path).returncode == 0
