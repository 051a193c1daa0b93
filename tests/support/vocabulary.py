"""What the glossary test looks for: retired words, and references to nothing.

As a program it prints how many of each a tree has: ``vocabulary.py FOLDER``.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

FOLDERS = ("protocol", "clients", "strategy", "wallflower")
ALSO = ("proto", "tests", "docs", "deploy", "benchmarks", "examples")
SUFFIXES = {".py", ".md", ".toml", ".proto", ".yml", ".yaml", ".html", ".js", ".css"}
SUFFIXES |= {".ts", ".sh", ".service", ".conf", ".mako", ".sql", ""}
EXEMPT = (
    "CHANGELOG.md",
    "docs/glossary.md",
    "tests/test_glossary.py",
    "tests/support/vocabulary.py",
)


@cache
def texts(root: Path) -> dict[str, str]:
    """Return every file that is written by hand, by its path; links are skipped."""
    paths = [path for path in root.iterdir() if path.is_file()]
    for folder in (*FOLDERS, *ALSO):
        paths += (root / folder).rglob("*")
    found = {}
    for path in paths:
        name = str(path.relative_to(root))
        if path.suffix in SUFFIXES and is_ours(path) and name not in EXEMPT:
            found[name] = path.read_text(encoding="utf-8")
    return found


def is_ours(path: Path) -> bool:
    return (
        path.is_file()
        and "_pb2" not in path.name
        and "__pycache__" not in path.parts
        and not {"node_modules", "dist"} & set(path.parts)
        and not path.name.startswith(".coverage")
        and not any(part.is_symlink() for part in (path, *path.parents))
    )


@cache
def modules(root: Path) -> dict[str, ast.Module]:
    return {n: ast.parse(t) for n, t in texts(root).items() if n.endswith(".py")}


def split_words(text: str) -> str:
    """Return the text with the parts of its identifiers as words in lower case."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|_", " ", text).lower()


Finder = Callable[[Path], Iterator[str]]


def word(pattern: str, *, but: str = "(?!)", pages: str = "(?!)") -> Finder:
    """Find words anywhere: prose, file names and parts of identifiers.

    The phrase `but` may stay, and files that match `pages` may use the word.
    """
    wanted, allowed = re.compile(rf"\b(?:{pattern})\b"), re.compile(but)

    def find(root: Path) -> Iterator[str]:
        for name, text in texts(root).items():
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

    def find(root: Path) -> Iterator[str]:
        for path, module in modules(root).items():
            for line, name in defined_names(module):
                if wanted.search(split_words(name)):
                    yield f"{path}:{line}: {name}"

    return find


def type_named(pattern: str, *, below: str = "") -> Finder:
    """Find classes of exactly this name, in this folder."""

    def find(root: Path) -> Iterator[str]:
        for path, module in modules(root).items():
            for node in ast.walk(module) if path.startswith(below) else ():
                if isinstance(node, ast.ClassDef) and re.fullmatch(pattern, node.name):
                    yield f"{path}:{node.lineno}: class {node.name}"

    return find


def in_docs(pattern: str, *, but: str = "(?!)") -> Finder:
    """Find prose of README and docs; code in backquotes does not count.

    Lines and pages that have `but` in them may use the word.
    """
    wanted = re.compile(rf"\b(?:{pattern})\b", re.IGNORECASE)

    def find(root: Path) -> Iterator[str]:
        for name, text in texts(root).items():
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
    "reward (in prose)": in_docs(
        r"rewards?(?! (?:sources?|servers?))", but="reference.md"
    ),
    "room": word("rooms|(?:this|every|each) room|room of the house"),
    "he, she (a user)": word("s?he|his|hers?|him(?:self)?|herself"),
    "threat-too-mild": word("too[- ]mild"),
}


# A dotted name in backquotes below one of the four folders, or below the package.
DOTTED = re.compile(
    rf"`(?:wallflower\.)?((?:{'|'.join(FOLDERS)})(?:\.(?!v1\b)\w+)+)(?:\(\))?`"
)


def docstrings(root: Path) -> Iterator[tuple[str, str]]:
    """Return all docstrings of the four folders and of the tests, with their places."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for path, module in modules(root).items():
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


def stale_references(root: Path) -> list[str]:
    """Return dotted names in docstrings that nothing has."""
    return sorted(
        f"{place}: {name}"
        for place, text in docstrings(root)
        for name in DOTTED.findall(text)
        if not does_exist(name)
    )


if __name__ == "__main__":
    tree = Path(sys.argv[1])
    words = sum(len(list(find(tree))) for find in RETIRED.values())
    print(words, len(stale_references(tree)))
