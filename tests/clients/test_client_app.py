from __future__ import annotations

import asyncio
import pickle
import threading
from collections.abc import Iterator

import pytest

from wallflower.clients.client_app import LoopThread, app


@pytest.fixture
def loop_thread() -> Iterator[LoopThread]:
    thread = LoopThread()
    yield thread
    thread.stop()


async def current_loop() -> asyncio.AbstractEventLoop:
    return asyncio.get_running_loop()


def test_successive_calls_share_one_loop(loop_thread: LoopThread) -> None:
    assert loop_thread.run(current_loop()) is loop_thread.run(current_loop())


def test_calls_from_many_threads_run_at_the_same_time(loop_thread: LoopThread) -> None:
    together = asyncio.Barrier(8)

    async def meet() -> None:
        async with asyncio.timeout(60):
            await together.wait()

    threads = [
        threading.Thread(target=lambda: loop_thread.run(meet())) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not any(thread.is_alive() for thread in threads)
    assert together.n_waiting == 0


def test_an_exception_reaches_its_caller(loop_thread: LoopThread) -> None:
    async def fail() -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        loop_thread.run(fail())


def test_stopping_cancels_what_is_left(loop_thread: LoopThread) -> None:
    cancelled = threading.Event()

    async def linger() -> None:
        try:
            await asyncio.sleep(600)
        finally:
            cancelled.set()

    async def start() -> asyncio.Task[None]:
        task = asyncio.create_task(linger())
        await asyncio.sleep(0)
        return task

    loop_thread.run(start())
    loop_thread.stop()
    assert cancelled.wait(30)


def test_flowers_simulation_can_ship_the_app_to_an_actor() -> None:
    from ray import cloudpickle

    shipped = pickle.loads(cloudpickle.dumps(app))
    assert type(shipped) is type(app)
