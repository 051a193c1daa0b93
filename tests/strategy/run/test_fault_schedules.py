"""Whatever the network does: an exact sum over the reported survivors, or no sum and a
reason; nobody counted twice; never a hang.

Every node's value is its own bit, so any sum names its summands. `make soak-faults`
runs 10,000 more schedules.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from tests.support.fault_schedules import run_schedules
from tests.support.virtual_time import HangError, run_virtually

# The same lines again and again, which others run too: not traced, twice as fast.
pytestmark = pytest.mark.no_cover


@pytest.mark.parametrize("first", range(0, 120, 30))
def test_seeded_fault_schedules_never_give_a_wrong_sum(first: int) -> None:
    tally = run_schedules(range(first, first + 30))
    # The faults must have been there, and must not have stopped everything.
    assert len(tally.injected) >= 7, str(tally)
    assert tally.sums >= 5, str(tally)
    assert tally.voids.total() >= 1, str(tally)


def test_a_wait_without_end_is_an_error_not_a_hang() -> None:
    with pytest.raises(HangError):
        run_virtually(asyncio.Event().wait())


def test_to_turn_on_the_spot_is_an_error_not_a_hang() -> None:
    async def spin() -> None:
        while True:  # noqa: ASYNC110 - the spin that is to be caught
            await asyncio.sleep(0)

    with pytest.raises(HangError, match="on the spot"):
        run_virtually(spin())


def test_virtual_time_passes_only_in_timers() -> None:
    async def sleep() -> float:
        start = asyncio.get_running_loop().time()
        await asyncio.sleep(7200)
        return asyncio.get_running_loop().time() - start

    assert run_virtually(sleep()) == pytest.approx(7200)


def test_a_thread_that_is_slow_to_end_is_no_hang(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def slowly(*_: Any) -> None:
        time.sleep(0.5)

    monkeypatch.setattr(asyncio.BaseEventLoop, "_do_shutdown", slowly)
    assert run_virtually(asyncio.to_thread(int)) == 0
