"""docs/dependencies.md names every package that somebody here asked for, and why."""

from __future__ import annotations

import ast
import importlib.metadata
import re
import sys
import tomllib
from collections import defaultdict
from itertools import chain
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from deploy import audit

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8")
HERE = ("node.txt", "operator.txt", "dev.txt", "build.txt")  # what `make env` installs
PRODUCT = ("protocol", "clients", "strategy", "wallflower")
OURS = {"wallflower", "tests", "deploy", "benchmarks", "wallflower_app"}


def reasons() -> dict[str, str]:
    """Return what the table says, by package."""
    rows = re.findall(r"^\| ([a-z][^|]*) \| ([^|]+) \|$", PAGE, re.MULTILINE)
    return {
        canonicalize_name(re.split(r"[ \[]", name.strip())[0]): why.strip()
        for names, why in rows
        for name in re.sub(r" [≥<][^,]*(, < \d+)?", "", names).split(",")
        if names != "package"
    }


def pinned(*files: str) -> set[str]:
    return {str(pin.name) for pin in audit.pins() if pin.file in files or not files}


def needed_by_others(names: set[str]) -> set[str]:
    """Follow what the packages require, with the extras they ask for."""
    extras: defaultdict[str, set[str]] = defaultdict(lambda: {""})
    needed: set[str] = set()
    grew = True
    while grew:
        grew = False
        for name in sorted(names):
            for line in importlib.metadata.distribution(name).requires or ():
                wanted = Requirement(line)
                other = canonicalize_name(wanted.name)
                marker = wanted.marker
                if marker is not None and not any(
                    marker.evaluate({"extra": extra}) for extra in extras[name]
                ):
                    continue
                grew |= other not in needed or not wanted.extras <= extras[other]
                needed.add(other)
                extras[other] |= wanted.extras
    return needed


def imported(*folders: str) -> set[str]:
    """Return the packages whose modules our code imports, generated code included."""
    found: set[str] = set()
    owners = importlib.metadata.packages_distributions()
    for folder in folders:
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                names: list[str] = []
                if isinstance(node, ast.Import):
                    names = [alias.name for alias in node.names]
                elif isinstance(node, ast.ImportFrom) and not node.level:
                    names = [node.module or ""]
                found |= {name.partition(".")[0] for name in names}
    found -= OURS | set(sys.stdlib_module_names)
    return {
        canonicalize_name(owner) for name in found for owner in owners.get(name, [])[:1]
    }


def asked_for() -> set[str]:
    """Return what the wheel requires, with every extra."""
    stated = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = stated["optional-dependencies"]
    lines = [*stated["dependencies"], *chain.from_iterable(extras.values())]
    names = {canonicalize_name(Requirement(line).name) for line in lines} - OURS
    return names | {"ray"}  # by flwr[simulation]


def test_whatever_the_wheel_asks_for_has_an_upper_bound() -> None:
    """A version that nobody tried is not installed; `make test-newest` tries them."""
    stated = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = stated["optional-dependencies"]
    lines = [*stated["dependencies"], *chain.from_iterable(extras.values())]
    unbounded = [
        line
        for line in lines
        if canonicalize_name(Requirement(line).name) not in OURS
        and not {"<", "=="} & {one.operator for one in Requirement(line).specifier}
    ]
    assert unbounded == []


def test_whatever_the_wheel_asks_for_has_its_reason() -> None:
    assert asked_for() - reasons().keys() == set()


def test_a_nodes_image_holds_whatever_the_wheel_asks_for_without_extras() -> None:
    stated = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = stated["dependencies"]
    asked = {canonicalize_name(Requirement(line).name) for line in lines}
    assert asked - pinned("node.txt") == set()


def test_whatever_the_wheels_code_imports_the_wheel_asks_for() -> None:
    # Whoever asks for a data frame has pandas.
    assert imported(*PRODUCT) - asked_for() == {"pandas"}


def test_whatever_our_code_imports_has_its_reason() -> None:
    # Known only where `make test-browser` installed them; the page names them apart.
    theirs = pinned("browser.txt")
    assert imported(*PRODUCT, "deploy", "tests") - reasons().keys() - theirs == set()


def test_a_pin_that_nothing_else_requires_has_its_reason() -> None:
    names = pinned(*HERE)
    chosen = names - needed_by_others(names)
    assert "ruff" in chosen
    assert chosen - reasons().keys() == set()


def test_nothing_is_explained_that_is_not_pinned() -> None:
    assert reasons().keys() - pinned() == set()


@pytest.mark.parametrize("path", sorted(audit.PINS.glob("*.txt")), ids=lambda p: p.name)
def test_every_file_of_pins_is_explained(path: Path) -> None:
    assert f"`{path.name}`" in PAGE or f"`deploy/pins/{path.name}`" in PAGE
