"""Reports as a browser shows them: every width, light and dark, axe-core, paper."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from tests.support.run_fixtures import SMALL, wallflower, write
from tests.wallflower.results.test_page import FAILING, TEST, UNDECIDED
from tests.wallflower.test_run_commands import invoke

pytestmark = pytest.mark.browser

LOOKS = [(390, "light"), (800, "light"), (1400, "light"), (1400, "dark")]
LONG = SMALL.replace('"b"', '"' + "a name without any place to break " * 5 + '"')
ALL_FAIL = FAILING.replace("some_fail", "all_fail").replace(
    "[nodes]", "[transport]\nattempts = 1\n[nodes]"
)
EXPERIMENTS = {
    "decided": SMALL,
    "faults": FAILING,
    "void": ALL_FAIL,
    "undecided": UNDECIDED,
    "test-mode": TEST,
    "altered": SMALL,
    "long-names": LONG,
}


@pytest.fixture(scope="session", params=EXPERIMENTS)
def page_file(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    folder = tmp_path_factory.mktemp(request.param)
    run_dir = folder / "run"
    # A process of its own: playwright's event loop holds this thread.
    experiment = write(folder, EXPERIMENTS[request.param])
    wallflower("run", experiment, "--run-dir", run_dir, cwd=folder)
    if request.param == "altered":
        with sqlite3.connect(run_dir / "journal.sqlite") as database:
            database.execute("UPDATE cohort SET size = size + 1")
    invoke("report", run_dir)
    return run_dir / "report.html"


@pytest.mark.parametrize(("width", "scheme"), LOOKS)
def test_a_report_fits_its_width_and_breaks_no_rule_of_accessibility(
    browser: Any, page_file: Path, width: int, scheme: str
) -> None:
    from axe_playwright_python.sync_playwright import Axe

    page = browser.new_page(
        viewport={"width": width, "height": 900}, color_scheme=scheme
    )
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("request", lambda request: complaints.append(request.url))
    page.goto(page_file.as_uri())
    too_wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
    found = Axe().run(page)
    page.screenshot(path=page_file.with_name(f"{width}-{scheme}.png"), full_page=True)
    page.close()
    assert complaints == [page_file.as_uri()]  # the page itself, nothing else
    assert too_wide <= 0
    assert found.violations_count == 0, found.generate_report()


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
    assert hidden == []
    assert paper.startswith(b"%PDF")
    assert b"/MediaBox [0 0 594" in paper or b"/MediaBox [0 0 595" in paper
