from __future__ import annotations

from typing import Any

import pytest

from wallflower.strategy.run.replay import agree

VIEW = {"arm": 2, "upper": 0.8581221538271379, "active": True, "reason": ""}


@pytest.mark.parametrize("upper", [0.8581221538271381, 0.8581221538271379])
def test_the_last_digit_of_another_processor_is_no_alteration(upper: float) -> None:
    assert agree([VIEW], [VIEW | {"upper": upper}])


@pytest.mark.parametrize(
    "change",
    [
        {"upper": 0.85812216},
        {"arm": 3},
        {"active": 1},
        {"reason": "x"},
        {"more": None},
        {"upper": None},
    ],
)
def test_whatever_a_reader_could_see_is_an_alteration(change: dict[str, Any]) -> None:
    assert not agree([VIEW], [VIEW | change])
    assert not agree([VIEW], [VIEW, VIEW])
