"""Reports as a browser shows them: every width, light and dark, axe-core, paper."""

from __future__ import annotations

import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from deploy.harness.processes import until
from tests.browser.looks import WIDTHS, fits, kept
from tests.support.run_fixtures import ROOT, SMALL, command, environment, write
from tests.wallflower.results.test_comparisons import EUROS
from tests.wallflower.results.test_missing import MISSING
from tests.wallflower.results.test_page import FAILING, LARGEST_BYTES, TEST, UNDECIDED
from tests.wallflower.results.test_sheet import STATED
from tests.wallflower.results.test_undecided import INDEX
from tests.wallflower.test_pausing import SLOW
from tests.wallflower.test_run_commands import invoke

# The demo's runs take a busy machine more than the usual two minutes.
pytestmark = pytest.mark.browser

LOOKS = [*((width, "light") for width in WIDTHS), (1400, "dark")]
MOST_SHEETS = 10  # of ten arms and a dozen rounds
LONG = SMALL.replace('"b"', f'"{" ".join(["a name of many words to break"] * 5)}"')
ALL_FAIL = FAILING.replace("some_fail", "all_fail").replace(
    "[nodes]", "[transport]\nattempts = 1\n[nodes]"
)


def carried_out(folder: Path, *words: str | Path) -> None:
    """Run a command in a process of its own: playwright's loop holds this thread."""
    slow = {"WALLFLOWER_TEST_SLOW": str(folder / "go")}
    subprocess.run(
        command(*words),
        cwd=folder,
        env={**environment(), **slow},
        capture_output=True,
        timeout=300,
        check=False,
    )


def run_of(text: str, folder: Path) -> None:
    carried_out(folder, "run", write(folder, text), "--run-dir", folder / "run")


def demo(name: str, folder: Path) -> None:
    file = ROOT / "examples" / f"{name}.toml"
    carried_out(folder, "run", file, "--run-dir", folder / "run")


def missing(folder: Path) -> None:
    """A run whose first arm misses every fifth node; it holds for who answered."""
    words = ("run", write(folder, MISSING), "--engine", "fast", "--run-dir")
    subprocess.run(
        [
            *(sys.executable, "-m", "tests.support.vanishing"),
            *(*map(str, words), str(folder / "run")),
        ],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        timeout=300,
        check=True,
    )


def altered(folder: Path) -> None:
    run_of(SMALL, folder)
    with sqlite3.connect(folder / "run" / "journal.sqlite") as database:
        database.execute("UPDATE cohort SET size = size + 1")


def killed(folder: Path) -> None:
    """A run whose server is killed in its first round and that goes on."""
    asked = folder / "go.asked"
    words = command("run", write(folder, SLOW), "--run-dir", folder / "run")
    slow = {**environment(), "WALLFLOWER_TEST_SLOW": str(folder / "go")}
    with subprocess.Popen(words, env=slow, stderr=subprocess.DEVNULL) as server:
        try:
            until("a user was asked", asked.exists, 300)
        finally:
            server.kill()
    (folder / "go").touch()
    carried_out(folder, "resume", folder / "run")


RUNS: Mapping[str, Callable[[Path], None]] = {
    "headline": partial(demo, "headline"),
    "phones": partial(demo, "phones"),
    "decided": partial(run_of, SMALL),
    "faults": partial(run_of, FAILING),
    "void": partial(run_of, ALL_FAIL),
    "undecided": partial(run_of, UNDECIDED),
    "index": partial(run_of, INDEX),
    "test-mode": partial(run_of, TEST),
    "killed": killed,
    "altered": altered,
    "missing": missing,
    "long-names": partial(run_of, LONG),
    "control": partial(run_of, EUROS),  # kept; lifts, a margin and a unit
}


@pytest.fixture(scope="session", params=RUNS)
def page_file(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    folder = tmp_path_factory.mktemp(request.param)
    RUNS[request.param](folder)
    report = folder / f"{request.param}.html"
    invoke("report", folder / "run", "--output", report)
    if copy := kept(report.name):
        copy.write_bytes(report.read_bytes())
    return report


@pytest.mark.parametrize(("width", "scheme"), LOOKS)
def test_a_report_fits_its_width_and_breaks_no_rule_of_accessibility(
    browser: Any, page_file: Path, width: int, scheme: str
) -> None:
    page = browser.new_page(color_scheme=scheme)
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("request", lambda request: complaints.append(request.url))
    page.goto(page_file.as_uri())
    fits(page, width, f"{page_file.stem}-{scheme}")
    page.close()
    assert complaints == [page_file.as_uri()]  # the page itself, nothing else


def test_a_report_prints_on_a4_with_all_its_tables(
    browser: Any, page_file: Path
) -> None:
    page = browser.new_page()
    page.goto(page_file.as_uri())
    page.emulate_media(media="print")
    hidden = page.evaluate(
        "[...document.querySelectorAll('table')].filter(t => !t.checkVisibility("
        "{contentVisibilityAuto: true})).map(t => t.caption.textContent)"
    )
    paper = page.pdf(prefer_css_page_size=True, print_background=True)
    page.close()
    if copy := kept(f"{page_file.stem}.pdf"):
        copy.write_bytes(paper)
    assert hidden == []
    assert paper.startswith(b"%PDF")
    assert len(re.findall(rb"/Type /Page\b", paper)) <= MOST_SHEETS
    assert b"/MediaBox [0 0 594" in paper or b"/MediaBox [0 0 595" in paper


def test_a_report_is_small(page_file: Path) -> None:
    assert page_file.stat().st_size <= LARGEST_BYTES


@pytest.mark.parametrize("language", ["en", "de"])
def test_a_sheet_for_participants_is_one_page_of_a4(
    browser: Any, language: str, tmp_path: Path
) -> None:
    words = "--language", language, "--output", tmp_path / "sheet.html"
    carried_out(tmp_path, "sheet", write(tmp_path, STATED), *words)
    page = browser.new_page()
    page.goto((tmp_path / "sheet.html").as_uri())
    fits(page, 390, f"sheet-{language}")
    page.emulate_media(media="print")
    paper = page.pdf(prefer_css_page_size=True, print_background=True)
    page.close()
    if copy := kept(f"sheet-{language}.pdf"):
        copy.write_bytes(paper)
    assert len(re.findall(rb"/Type /Page\b", paper)) == 1
