"""What every page is held to in a browser, and the pictures that `make looks` keeps."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

WIDTHS = (390, 800, 1400)


def violations(page: Any) -> str:
    """What axe-core finds wrong, in words."""
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page)
    return found.generate_report() if found.violations_count else ""


def kept(name: str) -> Path | None:
    """Where a picture goes, if somebody wants to look at it."""
    folder = os.environ.get("WALLFLOWER_LOOKS")
    return Path(folder) / name if folder else None


def fits(page: Any, width: int, name: str) -> None:
    """The page fits and breaks no rule of accessibility."""
    page.set_viewport_size({"width": width, "height": 900})
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    assert violations(page) == ""
    if picture := kept(f"{name}-{width}.png"):
        page.screenshot(path=picture, full_page=True)
