"""Figures that the documents quote from their own tables, or from plain arithmetic."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from deploy.harness.tables import read_csv

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
    _, rows = read_csv(ROOT / "docs" / "figures" / "check-decide.csv")
    allowed = [row for row in rows if row["level"] == "p"]
    too_many = [row for row in rows if row["level"] == "16 p"]
    assert len(allowed) + len(too_many) == len(rows) == 34
    assert {row["of"] for row in rows} == {"2000"}

    def most(chosen: list[dict[str, str]]) -> int:
        return max(int(row["dropped at most"]) for row in chosen)

    noiseless = [row for row in allowed if row["mechanism"] == "non-private"]
    bound = max(Fraction(row["99.9 % below"].split()[0]) for row in allowed)
    text = text_of("docs/results.md")
    assert f"At most {most(allowed)} of 2,000 runs dropped it (dist-dp" in text
    assert f"at most {most(noiseless)} without noise" in text
    settings = sum(int(row["rows"]) for row in allowed)
    assert f"2,000 runs of each of {settings + len(too_many)} settings" in text
    assert f"bound is at most {float(bound):.2f} %" in text
    caught = " and ".join(row["dropped at most"] for row in too_many)
    assert f"must see failures, and does: {caught} of 2,000" in text


def test_the_faults_survived_are_those_of_the_table() -> None:
    note, rows = read_csv(ROOT / "docs" / "figures" / "faults.csv")
    assert note.endswith(
        f"{len(rows)} faults, {len(rows)} survived; wrong sums: 0 of 231; "
        "users counted twice: 0; hangs: 0; records that do not verify: 0."
    )
    text = text_of("docs/faults.md")
    assert (
        f"All {len(rows)} faults were survived, and none of 231 sums was wrong" in text
    )


def test_no_setting_misses_more_differences_than_the_text_says() -> None:
    _, rows = read_csv(ROOT / "docs" / "figures" / "check-differences.csv")
    assert {row["of"] for row in rows} == {"2000"}
    most = {
        kind: max(int(row["wrong"]) for row in rows if row["what"] in kinds)
        for kind, kinds in (("missed", ["coverage"]), ("ended", ["equal", "futile"]))
    }
    text = text_of("docs/mathematics.md")
    assert f"plays 2,000 runs of each of {len(rows)} settings" in text
    said = f"At most {most['missed']} runs missed a pair, at most {most['ended']} ended"
    assert said in text
