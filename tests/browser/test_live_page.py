"""The live page in a real browser: while a run goes on, is killed, and goes on."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.browser.looks import WIDTHS, fits
from tests.support.run_fixtures import SMALL, command, environment, write
from tests.wallflower.test_pausing import SLOW
from tests.wallflower.test_watch_command import address_in

pytestmark = pytest.mark.browser

PATIENCE_MS = 60_000  # for a busy machine; what is waited for usually takes a second


@contextmanager
def process(*words: str | Path, go: Path) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        command(*words),
        env={**environment(), "WALLFLOWER_TEST_SLOW": str(go)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as started:
        try:
            yield started
        finally:
            started.kill()


def shown(page: Any, text: str) -> None:
    page.get_by_text(text).first.wait_for(timeout=PATIENCE_MS)


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """A run that is founded and stopped: it waits to be resumed."""
    from wallflower.strategy.config import load_config
    from wallflower.strategy.store.journal import Journal

    config = load_config(write(tmp_path, SLOW))
    Journal.create(tmp_path / "run", "live", config, "local").close()
    return tmp_path / "run"


def complaints_of(page: Any) -> list[str]:
    heard: list[str] = []
    page.on("console", lambda message: heard.append(message.text))
    page.on("pageerror", lambda error: heard.append(str(error)))
    return heard


def test_a_run_is_followed_while_it_is_killed_and_goes_on_to_its_end(
    browser: Any, run_dir: Path, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    page = browser.new_page()
    heard = complaints_of(page)
    with process("watch", run_dir, "--port", "0", go=go) as watching:
        assert watching.stdout is not None
        page.goto(address_in(watching.stdout.readline()))
        shown(page, "No server works on this run.")
        for width in WIDTHS:
            fits(page, width, "live-stopped")
        with process("resume", run_dir, go=go) as server:
            shown(page, "nodes heard")
            shown(page, "people can still be asked under these terms.")
            for width in WIDTHS:
                fits(page, width, "live-under-way")
            server.kill()  # SIGKILL: it can say nothing any more
            server.wait()
        shown(page, "No server works on this run.")
        go.touch()
        with process("resume", run_dir, go=go):
            shown(page, "The run is over")
        shown(page, "“b” is the best of 3 arms.")
        shown(page, "The run was resumed in round 1.")
        assert "is the best of 3 arms" in page.title()
        for width in WIDTHS:
            fits(page, width, "live-over")
    shown(page, "Not live: since")
    page.close()
    # Of the end of its server the browser itself complains as well.
    assert [one for one in heard if "net::ERR_" not in one] == []


def test_what_was_folded_out_stays_so_while_the_page_changes(
    browser: Any, run_dir: Path, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    page = browser.new_page()
    with process("watch", run_dir, "--port", "0", go=go) as watching:
        assert watching.stdout is not None
        page.goto(address_in(watching.stdout.readline()))
        page.get_by_text("The whole configuration").click()
        go.touch()
        with process("resume", run_dir, go=go):
            shown(page, "The run is over")
            shown(page, "“b” is the best of 3 arms.")
        folded_out = page.evaluate(
            "[...document.querySelectorAll('details[open] summary')]"
            ".map(one => one.textContent)"
        )
        page.close()
    assert folded_out == ["The whole configuration"]


def test_without_script_the_page_is_whole_and_loads_itself_anew(
    browser: Any, run_dir: Path, tmp_path: Path
) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    with process("watch", run_dir, "--port", "0", go=tmp_path / "go") as watching:
        assert watching.stdout is not None
        page.goto(address_in(watching.stdout.readline()))
        shown(page, "What people were promised")
        with process("resume", run_dir, go=tmp_path / "go"):
            shown(page, "nodes heard")  # by itself, after at most five seconds
    context.close()


def test_several_runs_stand_side_by_side_and_each_has_its_page(
    browser: Any, run_dir: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    go = tmp_path / "go"
    with process("run", write(tmp_path, SMALL), "--run-dir", other, go=go) as server:
        server.communicate()
    page = browser.new_page()
    with process("watch", run_dir, other, "--port", "0", go=go) as watching:
        assert watching.stdout is not None
        page.goto(address_in(watching.stdout.readline()))
        shown(page, "2 runs")
        for width in WIDTHS:
            fits(page, width, "live-several")
        with process("resume", run_dir, go=go):
            shown(page, "people are asked about")
        page.get_by_role("link", name="“b” is the best of 3 arms.").click()
        shown(page, "The run is over")
        page.get_by_role("link", name="All 2 runs").click()
        shown(page, "2 runs")
        page.close()
