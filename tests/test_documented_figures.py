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


def test_the_most_runs_that_dropped_the_best_arm_are_those_of_the_table() -> None:
    table = (ROOT / "docs" / "figures" / "check-decide.md").read_text("utf-8")
    rows = [
        line.split("|")[1:-1] for line in table.splitlines() if " of 2,000 |" in line
    ]
    allowed = [row for row in rows if " at 16 p " not in row[0]]
    too_many = [row for row in rows if " at 16 p " in row[0]]
    assert len(allowed) + len(too_many) == len(rows) == 40

    def most(chosen: list[list[str]]) -> int:
        return max(int(row[5].split()[0]) for row in chosen)

    private = [row for row in allowed if row[0].strip() != "non-private"]
    bound = max(Fraction(row[6].split()[0]) for row in allowed)
    text = text_of("docs/results.md")
    assert f"At most {most(allowed)} of 2,000 runs dropped it (non-private" in text
    assert f"at most {most(private)} with privacy" in text
    assert f"bound is at most {float(bound):.2f} %" in text
    caught = " and ".join(row[5].split()[0] for row in too_many)
    assert f"must see failures, and does: {caught} of 2,000" in text
