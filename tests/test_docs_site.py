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


def test_the_plan_of_the_house_names_every_room_and_no_other() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    plan = text.partition("```\n")[2].partition("```")[0]
    named: dict[str, set[str]] = {}
    root = ""
    for line in plan.splitlines():
        if not line.startswith(" "):
            root = line.partition("/")[0]
        named.setdefault(root, set()).update(re.findall(r"\b([a-z_]+)/", line))
    for root in ("protocol", "clients", "strategy", "wallflower"):
        rooms = {
            path.name
            for path in (ROOT / root).iterdir()
            if path.is_dir() and not path.is_symlink() and path.name != "__pycache__"
        }
        assert named[root] - {root, "proto"} == rooms, root
