"""Rewards that fail for some users, for tests of what is said about them."""

from __future__ import annotations

import asyncio

# No other number or word of a run looks like these: where they turn up they leaked.
TELLING_REWARD = 1.2345678
TELLING_WORDS = "the outcome was 0.8765432"


async def all_fail(arm: str, user: str) -> float:
    raise RuntimeError(TELLING_WORDS)


async def some_fail(arm: str, user: str) -> object:
    """Fail for one user in twenty: within what a cohort may lose."""
    if user in ("u7", "u27", "u47"):
        return str(TELLING_REWARD)  # a text is no number
    return float(arm == "b")


async def quick(arm: str, user: str) -> float:
    """Return everybody the best outcome at once."""
    return 1.0


async def troubled(arm: str, user: str) -> object:
    """Return outcomes that differ in value, time and trouble from person to person."""
    kind = int(user.removeprefix("u")) % 6
    if kind == 0:
        await asyncio.Event().wait()
    if kind == 1:
        raise RuntimeError(TELLING_WORDS)
    if kind == 2:
        raise asyncio.CancelledError(TELLING_WORDS)
    if kind == 3:
        return str(TELLING_REWARD)
    if kind == 4:
        await asyncio.sleep(0.1)
        return 1.0
    return 0.0


class Shop:
    """Opens and closes as a test says."""

    is_open = True


async def shop(arm: str, user: str) -> float:
    """Fail for everybody, test users included, while the shop is closed."""
    if not Shop.is_open:
        raise RuntimeError("the shop is closed")
    return 0.7 if arm == "b" else 0.3


async def often_unknown(arm: str, user: str) -> object:
    """Know nothing of every second person."""
    return None if int(user.removeprefix("u")) % 2 else 0.5
