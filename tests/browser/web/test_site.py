"""The website of the example, and the snippet of the docs."""

from __future__ import annotations

import base64
import gzip
import hashlib
import re
import time
from pathlib import Path
from typing import Any

import pytest

from benchmarks.web_site import Site
from tests.browser.looks import fits
from tests.browser.web.pages import wait_until

pytestmark = pytest.mark.browser


ROOT = Path(__file__).parents[3]
SCRIPT = ROOT / "clients" / "web" / "dist" / "wallflower.js"


def test_the_script_stays_below_40_kilobytes() -> None:
    assert len(gzip.compress(SCRIPT.read_bytes(), mtime=0)) <= 40_000


@pytest.mark.parametrize("width", [390, 1200])
@pytest.mark.parametrize("name", ["index", "survey"])
def test_the_example_fits_is_accessible_and_takes_an_answer(
    browser: Any, live: Site, name: str, width: int
) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.clock.install()
    page.goto(f"{live.pages}/{name}.html")
    page.wait_for_selector("#form:visible")
    fits(page, width, f"web-{name}")
    assert "You count in this test" in page.inner_text("#note")
    before = live.answers()
    if name == "survey":
        page.get_by_label("so so").check()
        page.get_by_role("button", name="Answer").click()
    else:
        page.get_by_role("button", name="Not now").click()
    assert page.inner_text("#done")
    assert live.answers() == before
    page.clock.fast_forward("01:00")  # the window's end
    wait_until(page, lambda: live.answers() == before + 1)
    context.close()


def test_the_snippet_of_the_docs_works_under_its_policy_and_integrity(
    browser: Any, live: Site
) -> None:
    text = (ROOT / "docs" / "web.md").read_text(encoding="utf-8")
    (snippet,) = re.findall(r"```html\n(.*?)```", text, re.S)
    for good in (True, False):
        digest = hashlib.sha384(SCRIPT.read_bytes() if good else b"other").digest()
        body = snippet.replace("https://ab.example", live.server)
        body = body.replace("sha384-…", f"sha384-{base64.b64encode(digest).decode()}")
        policy = f"script-src 'unsafe-inline' {live.server}; connect-src {live.server}"
        before = f"""<!doctype html><title></title><form id="form"></form>
          <meta http-equiv="Content-Security-Policy" content="{policy}">
          <script>function show(arm) {{ document.title = arm; }}</script>"""
        where = live.run_dir.parent / "pages" / "snippet.html"
        where.write_text(before + body, encoding="utf-8")
        context = browser.new_context()
        page = context.new_page()
        page.goto(f"{live.pages}/snippet.html")
        until = time.monotonic() + (60 if good else 2)
        while not page.title() and time.monotonic() < until:
            page.wait_for_timeout(100)
        assert (page.title() in ("short-form", "long-form")) == good
        context.close()
