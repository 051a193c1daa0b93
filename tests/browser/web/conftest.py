from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from benchmarks.web_site import PAGES, LiveSite, Site, experiment
from tests.browser.web.pages import WINDOW_S


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    shutil.copytree(PAGES, folder / "pages")
    config = experiment(window_s=WINDOW_S)
    with LiveSite(config, folder, folder / "pages") as site:
        yield site


@pytest.fixture
def new_page(browser: Any, live: Site) -> Iterator[Callable[..., Any]]:
    """Open pages of people who share nothing; each has a profile of its own.

    A profile is a private window's. No page may write to its console.
    """
    opened, written = [], list[str]()

    def page(context: Any = None) -> Any:
        if context is None:
            context = browser.new_context()
            context.on("console", lambda message: written.append(message.text))
            opened.append(context)
        found = context.new_page()
        found.goto(f"{live.pages}/site.css")  # a page of the site without its script
        return found

    yield page
    for context in opened:
        context.close()
    # Chromium writes itself where a call has no reply.
    assert [text for text in written if "Failed to load resource" not in text] == []
