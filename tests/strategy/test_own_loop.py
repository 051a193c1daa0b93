"""Coroutines are run to their end from plain code, inside a running loop too."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable

import pytest

from wallflower.strategy.own_loop import run_to_end


async def answer() -> int:
    await asyncio.sleep(0)
    return 42


async def fail() -> None:
    raise LookupError("what went wrong")


def test_plain_code_gets_the_result() -> None:
    assert run_to_end(answer()) == 42


async def test_a_notebooks_cell_gets_the_result_while_its_loop_runs() -> None:
    assert run_to_end(answer()) == 42


async def test_a_notebooks_cell_gets_the_error() -> None:
    with pytest.raises(LookupError, match="what went wrong"):
        run_to_end(fail())


def interrupt_cell(on_interrupt: Callable[[asyncio.Event], None] | None) -> str:
    """Interrupt a cell that waits for ever, as a kernel does; return how it ended."""
    woken = asyncio.Event()

    async def work() -> str:
        os.kill(os.getpid(), signal.SIGINT)
        await woken.wait()
        return "ended in order"

    async def cell() -> str:
        if on_interrupt is None:
            return run_to_end(work())
        return run_to_end(work(), lambda: on_interrupt(woken))

    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(cell())
    finally:
        loop.close()


def test_interrupting_a_cell_cancels_the_work() -> None:
    with pytest.raises(asyncio.CancelledError):
        interrupt_cell(None)


def test_interrupting_a_cell_lets_work_that_can_end_in_order_do_so() -> None:
    assert interrupt_cell(asyncio.Event.set) == "ended in order"
