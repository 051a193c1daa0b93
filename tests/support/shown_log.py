"""Rewards that write down to whom an arm is shown, in a file that outlives a kill."""

from __future__ import annotations

import os
import random
from collections import Counter
from pathlib import Path

MEANS = {"a": 0.5, "b": 0.55, "c": 0.4, "d": 0.75}
LOG = "WALLFLOWER_TEST_SHOWN"


def note(arm: str, user: str) -> None:
    """Write one line, at once."""
    with Path(os.environ[LOG]).open("a") as file:
        file.write(f"{arm} {user}\n")


async def reward(arm: str, user: str) -> float:
    """Show an arm."""
    note(arm, user)
    return float(random.Random(f"{arm} {user}").random() < MEANS[arm])


def shown(log: Path) -> Counter[tuple[str, str]]:
    """Count how often each arm was shown to users of each name."""
    lines = log.read_text().splitlines()
    return Counter((line.split()[0], line.split()[1]) for line in lines)
