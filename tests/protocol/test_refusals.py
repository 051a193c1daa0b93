"""Nodes refuse with codes of one list, and every code of it is used."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from wallflower.protocol.refusals import RefusalCode

ROOT = Path(__file__).parents[2]
FOLDERS = ("clients", "protocol", "strategy", "wallflower")
REFUSALS = {"RefusalError", "TermsError"}


def sources() -> Iterator[tuple[Path, str]]:
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield path.relative_to(ROOT), path.read_text()


def refusals(text: str) -> Iterator[ast.expr]:
    """Return the first argument of every refusal that is made."""
    for node in ast.walk(ast.parse(text)):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in REFUSALS
        ):
            yield node.args[0]


def test_every_refusal_has_a_code_of_the_list() -> None:
    others = [
        f"{path}:{code.lineno}"
        for path, text in sources()
        for code in refusals(text)
        if not ast.unparse(code).startswith("RefusalCode")
    ]
    assert others == []


def test_every_code_of_the_list_is_used() -> None:
    text = "\n".join(text for path, text in sources() if path.name != "refusals.py")
    used = set(re.findall(r"RefusalCode\.([A-Z_]+)", text))
    assert used == set(RefusalCode.__members__)


def test_a_code_is_its_name_in_kebab_case() -> None:
    assert [code.value for code in RefusalCode] == [
        name.lower().replace("_", "-") for name in RefusalCode.__members__
    ]
