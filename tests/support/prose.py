"""Sentences of Markdown pages and their lengths, without code, tables and headings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

_FENCE = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_SKIPPED = ("#", "|", "<!--", "!", ":::", "    ")
_ITEM = re.compile(r"^ *(?:[-*]|\d+\.) +")
_END = re.compile(r"(?<=[.?!])[\"”*)]*\s+(?=[\"“*(`\[A-Z0-9δετγ—P])")


def pages(root: Path) -> list[Path]:
    """Return the README and every page of the docs."""
    return [root / "README.md", *sorted((root / "docs").rglob("*.md"))]


def sentences(text: str) -> Iterator[list[str]]:
    """Return the words of each sentence; code in backquotes is one word."""
    for paragraph in _paragraphs(_FENCE.sub("\n", text)):
        plain = re.sub(r"`[^`]*`", "`code`", _LINK.sub(r"\1", paragraph))
        for sentence in _END.split(plain):
            words = [word for word in sentence.split() if re.search(r"\w", word)]
            if len(words) > 1:
                yield words


def _paragraphs(text: str) -> Iterator[str]:
    lines: list[str] = []
    for line in [*text.splitlines(), ""]:
        skipped = not line.strip() or line.startswith(_SKIPPED)
        if (skipped or _ITEM.match(line)) and lines:
            yield " ".join(lines)
            lines = []
        if not skipped:
            lines.append(_ITEM.sub("", line).strip())
