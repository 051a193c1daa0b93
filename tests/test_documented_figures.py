"""Figures that the documents quote from their own tables, or from plain arithmetic."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def text_of(name: str) -> str:
    return " ".join((ROOT / name).read_text("utf-8").split())


@pytest.mark.parametrize("name", ["README.md", "docs/simulation.md"])
def test_the_largest_variance_of_an_outcome_is_a_quarter(name: str) -> None:
    rates = [Fraction(rate, 100) for rate in range(101)]
    assert max(rate * (1 - rate) for rate in rates) == Fraction(1, 4)
    assert "the largest variance, ¼" in text_of(name)
    assert "variance of ½" not in text_of(name)


def test_the_largest_regrets_of_dp_klucb_are_told_beside_their_table() -> None:
    said = (ROOT / "docs" / "results.md").read_text("utf-8")
    chapter = said.split("## Largest regrets of index policies")[1].split("\n## ")[0]
    rows = [line.split("|") for line in chapter.splitlines() if line[:3] == "| 0"]
    largest = [int(row[5].split("/")[2].replace(",", "")) for row in rows]
    assert len(largest) == 12
    worst = sorted(largest, reverse=True)[:6]
    told = ", ".join(f"{regret:,}" for regret in worst[:5]) + f" and {worst[5]:,}"
    assert f"its largest regrets are {told}" in " ".join(chapter.split())
