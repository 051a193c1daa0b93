"""What `make docs` is built from is complete; the build itself finds broken links."""

from __future__ import annotations

import dataclasses
import inspect
import re
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import wallflower
from tests.support import prose
from wallflower.clients.consent import ClientPolicy
from wallflower.protocol.files.sections import RewardSettings
from wallflower.strategy.config import ExperimentConfig

ROOT = Path(__file__).parents[1]


def test_the_reference_lists_every_public_name_where_it_lives() -> None:
    text = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^::: (\S+)$", text, re.MULTILINE))
    homes = {f"{home}.{name}" for name, home in wallflower._HOMES.items()}
    assert listed == homes


def test_the_page_about_python_names_every_public_name() -> None:
    text = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    named = {
        name
        for row in re.findall(r"^\| `.*$", text, re.MULTILINE)
        for name in re.findall(r"`(\w+)`", row)
    }
    assert named == wallflower._HOMES.keys() | {"WallflowerError"}


def test_the_navigation_leads_to_pages_that_are_there() -> None:
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[2]
    listed = set(re.findall(r"[\w./-]+\.md", text))
    pages = (ROOT / "docs").rglob("*.md")
    assert listed
    assert listed <= {str(page.relative_to(ROOT / "docs")) for page in pages}


def test_no_link_of_a_page_leads_out_of_the_site() -> None:
    """`make docs` is strict, and a page outside docs/ is not part of the site."""
    docs = ROOT / "docs"
    outside = [
        f"{page.name}: {target}"
        for page in docs.rglob("*.md")
        for target in re.findall(
            r"\]\((?!https?:|#)([^)#]+)", page.read_text(encoding="utf-8")
        )
        if not (page.parent / target).resolve().is_relative_to(docs)
    ]
    assert outside == []


def test_the_architecture_page_names_every_folder_and_no_other() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    plan = text.partition("```\n")[2].partition("```")[0]
    named: dict[str, set[str]] = {}
    root = ""
    for line in plan.splitlines():
        if not line.startswith(" "):
            root = line.partition("/")[0]
        named.setdefault(root, set()).update(re.findall(r"\b([a-z_]+)/", line))
    for root in ("protocol", "clients", "strategy", "wallflower"):
        folders = {
            path.name
            for path in (ROOT / root).iterdir()
            if path.is_dir() and not path.is_symlink() and path.name != "__pycache__"
        }
        assert named[root] - {root, "proto"} == folders, root


def keys_of(section: Any) -> list[str]:
    # A table that may be left out is one of its type or None.
    section = next(iter(typing.get_args(section)), section)
    return [field.name.replace("_", "-") for field in dataclasses.fields(section)]


def test_the_pages_list_every_key_of_an_experiments_and_a_nodes_file() -> None:
    running = (ROOT / "docs" / "running.md").read_text(encoding="utf-8")
    clients = (ROOT / "docs" / "clients.md").read_text(encoding="utf-8")
    sections = typing.get_type_hints(ExperimentConfig)
    missing = [
        f"{table}.{key}"
        for table, section in sections.items()
        if table != "rewards"
        for key in keys_of(section)
        if f"`{table.replace('_', '-')}.{key}`" not in running
    ]
    missing += [
        key
        for section in (RewardSettings, ClientPolicy)
        for key in keys_of(section)
        if f"`{key}`" not in clients and f"`{key} =" not in clients
    ]
    assert missing == []


PUBLIC = sorted(wallflower._HOMES)


def parts_of(public: Any) -> Iterator[str]:
    """The fields of a dataclass, the parameters of a function or constructor."""
    if dataclasses.is_dataclass(public):
        yield from (field.name for field in dataclasses.fields(public))
    elif inspect.isfunction(public) or "__init__" in vars(public):
        kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        for name, parameter in inspect.signature(public).parameters.items():
            if parameter.kind not in kinds:
                yield name


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_name_says_what_it_is_and_what_each_of_its_parts_is(
    name: str,
) -> None:
    public = getattr(wallflower, name)
    text = inspect.getdoc(public) or ""
    assert text
    missing = [part for part in parts_of(public) if not re.search(rf"\b{part}\b", text)]
    assert missing == []


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_method_of_a_public_name_says_what_it_does(name: str) -> None:
    public = getattr(wallflower, name)
    methods = {
        key: value.fget if isinstance(value, property) else value
        for key, value in (vars(public).items() if inspect.isclass(public) else ())
        if not key.startswith("_")
    }
    assert [k for k, v in methods.items() if callable(v) and not v.__doc__] == []


def test_no_sentence_of_readme_and_docs_is_longer_than_25_words() -> None:
    long = [
        f"{page.relative_to(ROOT)}: {' '.join(words)}"
        for page in prose.pages(ROOT)
        for words in prose.sentences(page.read_text(encoding="utf-8"))
        if len(words) > 25
    ]
    assert not long, "\n".join(long)


def test_a_sentence_ends_before_code_and_at_the_end_of_a_list_item() -> None:
    text = "# No\nA b [c d](e.md). `f g` is it.\n\n- h i\n- j k l\n\n| m | n |\n"
    found = [" ".join(words) for words in prose.sentences(text)]
    assert found == ["A b c d.", "`code` is it.", "h i", "j k l"]


def test_the_changelog_is_short() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 100
