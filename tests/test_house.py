"""Rules that hold in every module, read from its code."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("protocol", "clients", "strategy", "wallflower")
MOST_IN_ORDER = 5
# Others' functions that take as many as one likes, or whose order C decided.
OTHERS = {"add_row", "log", "secp256k1_ecdh"}


@cache
def modules() -> dict[str, ast.Module]:
    """Return every module that is written by hand; links are followed once."""
    return {
        str(path.relative_to(ROOT)): ast.parse(path.read_text())
        for folder in FOLDERS
        for path in sorted((ROOT / folder).rglob("*.py"))
        if "_pb2" not in path.name
        and not any(part.is_symlink() for part in (path, *path.parents))
    }


@cache
def takes_any_number() -> frozenset[str]:
    """Name our functions that take as many arguments as one likes."""
    return frozenset(
        node.name
        for module in modules().values()
        for node in ast.walk(module)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.args.vararg is not None
    )


def long_calls(module: ast.Module) -> Iterator[str]:
    for node in ast.walk(module):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func).rpartition(".")[2]
            in_order = [a for a in node.args if not isinstance(a, ast.Starred)]
            if (
                len(in_order) > MOST_IN_ORDER
                and name not in OTHERS | takes_any_number()
            ):
                yield f"line {node.lineno}: {name} gets {len(in_order)}"


def set_from_outside(module: ast.Module) -> Iterator[str]:
    for node in ast.walk(module):
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.ctx, ast.Store)
            and node.attr.startswith("_")
            and ast.unparse(node.value) not in ("self", "cls")
        ):
            yield f"line {node.lineno}: {ast.unparse(node)}"


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_call_has_six_arguments_that_only_their_order_tells_apart(
    folder: str,
) -> None:
    found = {
        path: calls
        for path, module in modules().items()
        if path.startswith(folder) and (calls := list(long_calls(module)))
    }
    assert not found, "name the arguments"


@pytest.mark.parametrize("folder", FOLDERS)
def test_nobody_sets_what_is_private_to_another_object(folder: str) -> None:
    found = {
        path: places
        for path, module in modules().items()
        if path.startswith(folder) and (places := list(set_from_outside(module)))
    }
    assert not found, "let the object change itself"


def test_a_long_call_and_a_foreign_attribute_are_found() -> None:
    module = ast.parse("f(1, 2, 3, 4, 5, 6); f(1, 2, 3, 4, 5, n=6)\nother._x += 1")
    assert list(long_calls(module)) == ["line 1: f gets 6"]
    assert list(set_from_outside(module)) == ["line 2: other._x"]
