"""A whole experiment over people who arrive, each with their own encryption."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.shop import run_shop


@pytest.mark.slow  # 8,600 people write, noise and encrypt: half a minute
@pytest.mark.timeout(900)  # each of them waits for a disk
def test_the_shop_finds_the_best_checkout_with_as_many_people_as_simulated(
    tmp_path: Path,
) -> None:
    # 99 of 100 simulated shops decide after the same round, with the same people.
    shop = run_shop(tmp_path / "run")
    assert shop.is_good, shop.describe()
    assert (shop.result.void, shop.result.answered) == (0, shop.result.invited)
    assert "wallet" in (tmp_path / "run" / "report.html").read_text()
