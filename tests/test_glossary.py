"""Retired words do not come back, and references in docstrings name what exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.vocabulary import (
    RETIRED,
    does_exist,
    split_words,
    stale_references,
)

ROOT = Path(__file__).parents[1]


def listed_words() -> list[str]:
    text = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    return re.findall(r"^- ([^:]+):", text.partition("## Retired words")[2], re.M)


def test_every_retired_word_is_looked_for() -> None:
    assert listed_words() == list(RETIRED)


@pytest.mark.parametrize("entry", RETIRED)
def test_a_retired_word_does_not_come_back(entry: str) -> None:
    found = sorted(RETIRED[entry](ROOT))
    assert not found, "\n".join(
        [f"{len(found)} times; docs/glossary.md says what to write instead", *found]
    )


def test_the_parts_of_identifiers_are_words() -> None:
    assert split_words("DeskSettings.open_desk") == "desk settings.open desk"


def test_a_dotted_name_in_a_docstring_exists() -> None:
    missing = stale_references(ROOT)
    assert not missing, "\n".join(missing)


def test_what_exists_is_told_from_what_does_not() -> None:
    assert does_exist("protocol.errors.UnavailableError")
    assert does_exist("strategy.config")
    assert not does_exist("protocol.errors.NoSuchError")
    assert not does_exist("protocol.no_such_module")
