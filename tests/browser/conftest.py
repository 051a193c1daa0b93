from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Debian's chromium; root needs --no-sandbox."""
    driver = pytest.importorskip("playwright.sync_api", reason="make test-browser")
    path = shutil.which("chromium")
    if path is None:
        pytest.skip("no chromium here: make test-browser installs it")
    with driver.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield opened
        opened.close()
