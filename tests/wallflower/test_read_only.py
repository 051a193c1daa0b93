"""A run on a read-only disk is read without writing anything there.

Root may write anywhere, so these processes give up that right first.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.run_fixtures import SMALL, command, environment, wallflower, write

WITHOUT_THE_RIGHT = (
    ("setpriv", "--bounding-set", "-dac_override,-dac_read_search")
    if os.geteuid() == 0
    else ()
)
LOGS = ("journal.sqlite-wal", "journal.sqlite-shm", "ledger.sqlite-wal")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    done = wallflower("run", write(folder, SMALL), "--run-dir", "run", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder / "run"


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose server was killed: part of its record stands in a log only."""
    folder = tmp_path_factory.mktemp("killed")
    phase = ("seal partly answered", str(folder / "marker"), "0")
    words = ("run", str(write(folder, SMALL)), "--run-dir", "run")
    subprocess.run(
        [sys.executable, "-m", "tests.integration.killed_server", *phase, *words],
        cwd=folder,
        env=environment(),
        capture_output=True,
        check=False,
    )
    assert (folder / "run" / LOGS[0]).stat().st_size > 0
    return folder / "run"


@pytest.fixture(params=["finished", "finished, without logs", "killed"])
def run_dir(
    request: pytest.FixtureRequest, tmp_path: Path, finished: Path, killed: Path
) -> Iterator[Path]:
    """A copy that nobody may write to."""
    source = killed if request.param == "killed" else finished
    copy = Path(shutil.copytree(source, tmp_path / "run"))
    if "without" in request.param:
        for name in LOGS:
            (copy / name).unlink(missing_ok=True)
    for path in copy.iterdir():
        path.chmod(0o400)
    copy.chmod(0o500)
    yield copy
    copy.chmod(0o700)


def read_only(*words: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*WITHOUT_THE_RIGHT, *command(*words)],
        cwd=cwd,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def content_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.slow  # a process and a run each
@pytest.mark.parametrize(
    "words",
    [
        ("verify", "run"),
        ("status", "run"),
        ("export", "run"),
        ("report", "run", "--output", "page.html"),
    ],
    ids=lambda words: words[0],
)
def test_a_run_is_read_from_a_read_only_disk(
    words: tuple[str, ...], run_dir: Path
) -> None:
    before = content_of(run_dir)
    writable = Path(shutil.copytree(run_dir, run_dir.parent / "elsewhere" / "run"))
    writable.chmod(0o700)
    done = read_only(*words, cwd=run_dir.parent)
    expected = wallflower(*words, cwd=writable.parent)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == expected.stdout
    assert content_of(run_dir) == before


def test_a_report_that_cannot_be_written_says_what_to_do(run_dir: Path) -> None:
    done = read_only("report", "run", cwd=run_dir.parent)
    assert done.returncode == 4
    assert "run/report.html cannot be written (Permission denied)" in done.stderr
    assert "--output FILE" in done.stderr


def test_a_run_on_a_read_only_disk_is_not_resumed(run_dir: Path) -> None:
    done = read_only("resume", "run", cwd=run_dir.parent)
    assert "Traceback" not in done.stderr
    if "finished" not in done.stderr:
        assert (done.returncode, "cannot be" in done.stderr) == (4, True)


@pytest.mark.parametrize("words", [("status",), ("archive",)])
def test_a_folder_that_may_not_be_entered_is_named(
    words: tuple[str, ...], finished: Path, tmp_path: Path
) -> None:
    copy = Path(shutil.copytree(finished, tmp_path / "run"))
    copy.chmod(0)
    done = read_only(*words, "run", cwd=tmp_path)
    copy.chmod(0o700)
    assert (done.returncode, done.stderr.count("\n")) == (4, 1), done.stderr
    assert "run/journal.sqlite cannot be used (Permission denied)" in done.stderr


def test_a_record_that_may_not_be_read_is_not_told_to_make_room(
    finished: Path, tmp_path: Path
) -> None:
    copy = Path(shutil.copytree(finished, tmp_path / "run"))
    (copy / "journal.sqlite").chmod(0)
    done = read_only("status", "run", cwd=tmp_path)
    assert (done.returncode, "make room" in done.stderr) == (4, False), done.stderr
    assert "run/journal.sqlite cannot be read" in done.stderr


def test_an_archive_in_a_read_only_folder_says_what_stays(
    finished: Path, tmp_path: Path
) -> None:
    copy = Path(shutil.copytree(finished, tmp_path / "run"))
    copy.chmod(0o500)
    done = read_only("archive", "run", cwd=tmp_path)
    copy.chmod(0o700)
    assert (done.returncode, done.stderr.count("\n")) == (4, 1), done.stderr
