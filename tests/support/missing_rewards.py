"""Rewards that three users of twenty never have, for the arms a test names."""

from __future__ import annotations

import os


def reward(arm: str, user: str) -> float:
    missing = int(user.removeprefix("u")) % 20 < 3
    if missing and arm in os.environ["WALLFLOWER_TEST_MISSING"]:
        return float("nan")
    return 0.5
