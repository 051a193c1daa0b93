"""Print files and lines of every folder, at a commit and now: ``make sizes``."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter

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


def main() -> None:
    """Print a table of before and after."""
    before, after = count_folders(sys.argv[1]), count_folders("HEAD")
    print(
        "| folder | files before | lines | files now | lines |\n|---|---|---|---|---|"
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
