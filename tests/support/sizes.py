"""Print what the tree has, at a commit and now: ``make sizes``.

First what is read (product, prose, vocabulary), then files and lines of every folder.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from tests.support import prose, vocabulary

_TWO_LEVELS = ("protocol", "clients", "strategy", "wallflower")
# Drawn or written by other tools.
_GENERATED = ("_pb2", "docs/figures/", "deploy/pins/")


def count_folders(commit: str) -> tuple[Counter[str], Counter[str]]:
    """Return files and lines by folder: two levels of code, one of everything else."""
    listed = subprocess.run(
        ["git", "grep", "-Ic", "", commit], capture_output=True, text=True, check=True
    )
    files: Counter[str] = Counter()
    lines: Counter[str] = Counter()
    for row in listed.stdout.splitlines():
        name, _, count = row.removeprefix(f"{commit}:").rpartition(":")
        if any(part in name for part in _GENERATED):
            continue
        parts = name.split("/")[:-1]
        levels = 2 if parts and parts[0] in _TWO_LEVELS else 1
        folder = "/".join(parts[:levels]) or "."
        files[folder] += 1
        lines[folder] += int(count)
    return files, lines


def measure_tree(root: Path) -> dict[str, str]:
    """Return what is read of a tree, by the name of the figure."""
    product = {
        name: module
        for name, module in vocabulary.modules(root).items()
        if name.startswith(_TWO_LEVELS)
    }
    lines = sum(len(vocabulary.texts(root)[name].splitlines()) for name in product)
    classes = [
        node.name
        for module in product.values()
        for node in module.body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    ]
    texts = [page.read_text(encoding="utf-8") for page in prose.pages(root)]
    lengths = [len(words) for text in texts for words in prose.sentences(text)]
    # In a process of its own, because names are looked up in that tree's packages.
    found = subprocess.run(
        [sys.executable, "-P", vocabulary.__file__, str(root)],
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        check=True,
    )
    retired, stale = found.stdout.split()
    return {
        "lines of the product's Python": f"{lines:,}",
        "modules of the product": f"{len(product):,}",
        "public classes": f"{len(classes):,}",
        "words of docs": f"{sum(len(text.split()) for text in texts[1:]):,}",
        "words in a sentence of README and docs, mean": f"{_mean(lengths):.1f}",
        "words in the longest sentence": f"{max(lengths):,}",
        "retired words left": retired,
        "references to nothing in docstrings": stale,
    }


def measure_commit(commit: str) -> dict[str, str]:
    """Return what is read of a commit."""
    with tempfile.TemporaryDirectory() as folder:
        packed = subprocess.run(
            ["git", "archive", commit], capture_output=True, check=True
        )
        subprocess.run(["tar", "-x", "-C", folder], input=packed.stdout, check=True)
        return measure_tree(Path(folder))


def _mean(lengths: list[int]) -> float:
    return sum(lengths) / len(lengths)


def main() -> None:
    """Print tables of before and after."""
    commit = sys.argv[1]
    then, now = measure_commit(commit), measure_commit("HEAD")
    print("| what | before | now |\n|---|---|---|")
    for name, value in then.items():
        print(f"| {name} | {value} | {now[name]} |")
    before, after = count_folders(commit), count_folders("HEAD")
    print(
        "\n| folder | files before | lines | files now | lines |\n|---|---|---|---|---|"
    )
    for folder in sorted(before[0].keys() | after[0].keys()):
        cells = (
            before[0][folder],
            before[1][folder],
            after[0][folder],
            after[1][folder],
        )
        print(f"| {folder} | " + " | ".join(f"{cell:,}" for cell in cells) + " |")
    sums = [count.total() for side in (before, after) for count in side]
    print("| all | " + " | ".join(f"{cell:,}" for cell in sums) + " |")


if __name__ == "__main__":
    main()
