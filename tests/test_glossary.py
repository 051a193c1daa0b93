"""Retired words do not come back, and references in docstrings name what exists."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("protocol", "clients", "strategy", "wallflower")
ALSO = ("proto", "tests", "docs", "deploy", "benchmarks", "examples")
SUFFIXES = {".py", ".md", ".toml", ".proto", ".yml", ".yaml", ".html", ".js", ".css"}
SUFFIXES |= {".ts", ".sh", ".service", ".conf", ".mako", ".sql", ""}
EXEMPT = ("CHANGELOG.md", "docs/glossary.md", "tests/test_glossary.py")


@cache
def texts() -> dict[str, str]:
    """Return every file that is written by hand, by its path; links are skipped."""
    paths = [path for path in ROOT.iterdir() if path.is_file()]
    for folder in (*FOLDERS, *ALSO):
        paths += (ROOT / folder).rglob("*")
    found = {}
    for path in paths:
        name = str(path.relative_to(ROOT))
        if path.suffix in SUFFIXES and is_ours(path) and name not in EXEMPT:
            found[name] = path.read_text(encoding="utf-8")
    return found


def is_ours(path: Path) -> bool:
    return (
        path.is_file()
        and "_pb2" not in path.name
        and "__pycache__" not in path.parts
        and "node_modules" not in path.parts
        and not path.name.startswith(".coverage")
        and not any(part.is_symlink() for part in (path, *path.parents))
    )


@cache
def modules() -> dict[str, ast.Module]:
    return {n: ast.parse(t) for n, t in texts().items() if n.endswith(".py")}


def split_words(text: str) -> str:
    """Return the text with the parts of its identifiers as words in lower case."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|_", " ", text).lower()


Finder = Callable[[], Iterator[str]]


def word(pattern: str, *, but: str = "(?!)", pages: str = "(?!)") -> Finder:
    """Find words anywhere: prose, file names and parts of identifiers.

    The phrase `but` may stay, and files that match `pages` may use the word.
    """
    wanted, allowed = re.compile(rf"\b(?:{pattern})\b"), re.compile(but)

    def find() -> Iterator[str]:
        for name, text in texts().items():
            if re.match(pages, name):
                continue
            if wanted.search(split_words(name)):
                yield name
            for number, line in enumerate(text.splitlines(), 1):
                if wanted.search(allowed.sub("", split_words(line))):
                    yield f"{name}:{number}: {line.strip()[:100]}"

    return find


def defined(pattern: str) -> Finder:
    """Find parts of names that Python code defines: other meanings stay in prose."""
    wanted = re.compile(rf"\b(?:{pattern})\b")

    def find() -> Iterator[str]:
        for path, module in modules().items():
            for line, name in defined_names(module):
                if wanted.search(split_words(name)):
                    yield f"{path}:{line}: {name}"

    return find


def type_named(pattern: str, *, below: str = "") -> Finder:
    """Find classes of exactly this name, in this folder."""

    def find() -> Iterator[str]:
        for path, module in modules().items():
            for node in ast.walk(module) if path.startswith(below) else ():
                if isinstance(node, ast.ClassDef) and re.fullmatch(pattern, node.name):
                    yield f"{path}:{node.lineno}: class {node.name}"

    return find


def in_docs(pattern: str, *, but: str = "(?!)") -> Finder:
    """Find prose of README and docs; code in backquotes does not count.

    Lines and pages that have `but` in them may use the word.
    """
    wanted = re.compile(rf"\b(?:{pattern})\b", re.IGNORECASE)

    def find() -> Iterator[str]:
        for name, text in texts().items():
            if not name.endswith(".md") or re.search(but, name):
                continue
            fence = False
            for number, line in enumerate(text.splitlines(), 1):
                fence ^= line.lstrip().startswith("```")
                prose = re.sub(r"`[^`]*`|\(\S+\)", "", line)
                if not fence and wanted.search(prose) and not re.search(but, line):
                    yield f"{name}:{number}: {line.strip()[:100]}"

    return find


def defined_names(module: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(module):
        match node:
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                yield node.lineno, node.name
            case ast.arg():
                yield node.lineno, node.arg
            case ast.Name(ctx=ast.Store()):
                yield node.lineno, node.id
            case ast.Attribute(ctx=ast.Store()):
                yield node.lineno, node.attr


# What each line of the glossary's list forbids. An ordinary word is looked for only
# where it had its private meaning.
RETIRED: dict[str, Finder] = {
    "desk": word("desks?"),
    "attend, attendee": word("attend(?:s|ed|ing|ees?|ances?)?"),
    "visit, lobby": word(
        "(?:re)?visit(?:s|ed|ing)?|lobb(?:y|ies)",
        # what people do on a site
        pages="docs/tutorial|examples/|wallflower/starter/|wallflower/commands/new.py",
    ),
    "summons": word("summon(?:s|ed|ing)?"),
    "greeting": word("greet(?:s|ed|ing|ings)?"),
    "port (interface)": word(
        "(?:node|nodes|faulty|flower|memory|inner|bundling) ports?|port contract"
        "|ports? of nodes|node(?:'s)? ports?"
    ),
    "record (package)": word("strategy[./]record"),
    "wish": word("wish(?:es|ed|ing)?"),
    "standing": defined("standings?"),
    "opening, setting (of sessions)": type_named(
        "Setting|OpenSession|SessionOpener|OpenCohorts"
    ),
    "dealing (of a whole key)": type_named("Dealings|Dealt|DealtKey|KeyDealt"),
    "courier, parcel": word("couriers?|parcels?"),
    "vault": word("vaults?"),
    "counter mark, claim": type_named("Counter|Mark|Claim", below="clients/node/"),
    "heap": word("heaps?"),
    "evidence, aim, side": type_named("Evidence|Aim|Side|Heard"),
    "batch (of users)": in_docs("batch(?:es)?", but="shuffl"),
    "group (of people)": in_docs("groups? of (?:people|users|persons)"),
    "reward (in prose)": in_docs(r"rewards?(?! (?:sources?|servers?))", but="api.md"),
    "room": word("rooms|(?:this|every|each) room|room of the house"),
    "he, she (a user)": word("s?he|his|hers?|him(?:self)?|herself"),
    "threat-too-mild": word("too[- ]mild"),
}


def listed_words() -> list[str]:
    text = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    return re.findall(r"^- ([^:]+):", text.partition("## Retired words")[2], re.M)


def test_every_retired_word_is_looked_for() -> None:
    assert listed_words() == list(RETIRED)


@pytest.mark.parametrize("entry", RETIRED)
def test_a_retired_word_does_not_come_back(entry: str) -> None:
    found = sorted(RETIRED[entry]())
    assert not found, "\n".join(
        [f"{len(found)} times; docs/glossary.md says what to write instead", *found]
    )


def test_the_parts_of_identifiers_are_words() -> None:
    assert split_words("DeskSettings.open_desk") == "desk settings.open desk"


# A dotted name in backquotes below one of the four folders, or below the package.
DOTTED = re.compile(
    rf"`(?:wallflower\.)?((?:{'|'.join(FOLDERS)})(?:\.(?!v1\b)\w+)+)(?:\(\))?`"
)


def docstrings() -> Iterator[tuple[str, str]]:
    """Return all docstrings of the four folders and of the tests, with their places."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for path, module in modules().items():
        for node in ast.walk(module):
            if isinstance(node, kinds) and (text := ast.get_docstring(node)):
                yield f"{path}:{getattr(node, 'lineno', 1)}", text


def does_exist(dotted: str) -> bool:
    """Return whether a name is a module, or an attribute of one, below `wallflower`."""
    parts = dotted.split(".")
    if parts[0] != "wallflower":
        parts.insert(0, "wallflower")
    for count in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:count]))
        except ModuleNotFoundError:
            continue
        rest = parts[count:]
        for name in rest:
            fields = inspect.get_annotations(found) if inspect.isclass(found) else ()
            if not hasattr(found, name) and name not in fields:
                return False
            found = getattr(found, name, None)
        return count > 1 or bool(rest)
    return False


def test_a_dotted_name_in_a_docstring_exists() -> None:
    missing = sorted(
        f"{place}: {name}"
        for place, text in docstrings()
        for name in DOTTED.findall(text)
        if not does_exist(name)
    )
    assert not missing, "\n".join(missing)


def test_what_exists_is_told_from_what_does_not() -> None:
    assert does_exist("protocol.errors.UnavailableError")
    assert does_exist("strategy.config")
    assert not does_exist("protocol.errors.NoSuchError")
    assert not does_exist("protocol.no_such_module")
