"""The live page as a process of its own, and beside a run."""

from __future__ import annotations

import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.support.run_fixtures import command, environment, write
from tests.wallflower.test_pausing import SLOW
from tests.wallflower.test_run_commands import invoke


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    code, said = invoke("run", write(folder), "--run-dir", folder / "run")
    assert code == 0, said
    return folder / "run"


@contextmanager
def started(*words: str | Path, **more: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        command(*words),
        env={**environment(), **more},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def address_in(line: str) -> str:
    (found,) = (word for word in line.split() if word.startswith("http"))
    return found


def test_ctrl_c_ends_the_page_without_an_error(finished: Path) -> None:
    with started("watch", finished, "--port", "0") as process:
        assert process.stdout is not None
        address = address_in(process.stdout.readline())
        with urllib.request.urlopen(address) as page:
            assert "“b” is the best of 3 arms." in page.read().decode()
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=300)
        assert (process.returncode, said) == (0, "")


def test_the_stream_tells_every_part_and_ends_with_the_page(finished: Path) -> None:
    with started("watch", finished, "--port", "0") as process:
        assert process.stdout is not None
        address = address_in(process.stdout.readline())
        with urllib.request.urlopen(f"{address}runs/1/events") as stream:
            assert stream.headers["content-type"].startswith("text/event-stream")
            told = b""
            while b'"part": "now"' not in told:
                told += stream.readline()
            process.send_signal(signal.SIGTERM)
            stream.read()
        process.communicate(timeout=300)
        assert process.returncode == 0


def children_of(process: subprocess.Popen[str]) -> list[psutil.Process]:
    return psutil.Process(process.pid).children(recursive=True)


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
def test_the_page_beside_a_run_ends_with_it_however_that_ends(
    end: signal.Signals, tmp_path: Path
) -> None:
    experiment = write(tmp_path, SLOW)
    words = ("run", experiment, "--run-dir", tmp_path / "run", "--page")
    slow = {"WALLFLOWER_TEST_SLOW": str(tmp_path / "never")}
    with started(*words, **slow) as process:
        assert process.stderr is not None
        line = next(line for line in process.stderr if "http" in line)
        with urllib.request.urlopen(address_in(line)) as page:
            assert "Now" in page.read().decode()
        (page_process,) = children_of(process)
        process.send_signal(end)
        process.communicate(timeout=300)
        page_process.wait(60)


def test_a_run_with_a_page_says_where_it_is_and_then_its_result(
    tmp_path: Path,
) -> None:
    words = ("run", write(tmp_path), "--run-dir", tmp_path / "run", "--page")
    with started(*words) as process:
        out, said = process.communicate(timeout=300)
        assert process.returncode == 0
        assert "The page of this run: http://127.0.0.1:" in said
        assert '"b" is the best of 3 arms' in out
