"""Rewards that wait at a gate, so that a fault can be placed in the middle of a stage.

A node of the laboratory names this as its reward source
(``function = "deploy.harness.rewards:reward"``). While the file named by
``WALLFLOWER_LAB_GATE`` exists, its users' rewards are not there yet: that is what a
slow device looks like, and it holds the cohort in its contribution stage.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
from pathlib import Path

GATE = "WALLFLOWER_LAB_GATE"
MEANS = "WALLFLOWER_LAB_MEANS"  # JSON: the mean of each arm, by name
_POLL_S = 0.02


async def reward(arm: str, user: str) -> float:
    """Return 1 or 0 with the arm's mean, always the same for one user and arm."""
    gate = os.environ.get(GATE)
    while gate and Path(gate).exists():  # noqa: ASYNC110, ASYNC240
        await asyncio.sleep(_POLL_S)
    mean: float = json.loads(os.environ[MEANS])[arm]
    digest = hashlib.sha256(f"{arm}/{user}".encode()).digest()
    return float(int.from_bytes(digest[:8], "big") / 2**64 < mean)
