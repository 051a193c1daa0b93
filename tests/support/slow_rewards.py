"""Rewards that wait until a file is there; used by tests that interrupt a run."""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path


async def reward(arm: str, user: str) -> float:
    await _wait()
    chance = {"a": 0.1, "b": 0.9, "c": 0.2}[arm]
    return float(random.Random(f"{arm} {user}").random() < chance)


async def even_reward(arm: str, user: str) -> float:
    """Return every arm the same, so that none is out after a round."""
    await _wait()
    return 0.5


async def _wait() -> None:
    while not _may_go():  # noqa: ASYNC110 (a file tells nobody)
        await asyncio.sleep(0.05)


def _may_go() -> bool:
    go = Path(os.environ["WALLFLOWER_TEST_SLOW"])
    go.with_name(go.name + ".asked").touch()
    return go.exists()
