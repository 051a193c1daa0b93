"""What `make docs` is built from is complete; the build itself finds broken links."""

from __future__ import annotations

import re
from pathlib import Path

import wallflower

ROOT = Path(__file__).parents[1]


def test_the_reference_lists_public_names_where_they_live() -> None:
    text = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^::: (\S+)$", text, re.MULTILINE))
    homes = {f"{home}.{name}" for name, home in wallflower._HOMES.items()}
    assert listed
    assert listed <= homes


def test_the_navigation_leads_to_pages_that_are_there() -> None:
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[2]
    listed = set(re.findall(r"[\w./-]+\.md", text))
    pages = (ROOT / "docs").rglob("*.md")
    assert listed
    assert listed <= {str(page.relative_to(ROOT / "docs")) for page in pages}


def test_every_public_name_says_what_it_is() -> None:
    for name in wallflower._HOMES:
        assert (getattr(wallflower, name).__doc__ or "").strip(), name
