"""The range of outcomes is part of the question: its documented prices are measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.scaling import ARMS, HIGH_ENDS, draw_revenue, price_of

ROOT = Path(__file__).parents[2]
RUNS = 200


@pytest.mark.parametrize("high", HIGH_ENDS)
def test_the_documented_price_of_a_range_is_measured(high: int) -> None:
    price = price_of(draw_revenue(), high, RUNS)
    assert (price.right, price.undecided) == (RUNS, 0)
    best = ARMS[max(range(len(ARMS)), key=lambda arm: price.means[arm])]
    means = " | ".join(f"{mean:.2f} €" for mean in price.means)
    cells = f"0 to {high:,} €", means, price.clipped, f"{price.people:,.0f}", best
    row = f"| {' | '.join(map(str, cells))} |"
    assert row in (ROOT / "docs" / "scaling.md").read_text(encoding="utf-8")


def test_most_people_pay_nothing_and_annual_brings_more() -> None:
    monthly, annual = draw_revenue()
    assert (monthly == 0).mean() > 0.6
    assert (annual == 0).mean() > 0.8
    assert annual.mean() > 3 * monthly.mean()
