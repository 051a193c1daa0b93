"""Rewards that fail for some users, for tests of what is said about them."""

from __future__ import annotations

# No other number or word of a run looks like these: where they turn up they leaked.
TELLING_REWARD = 1.2345678
TELLING_WORDS = "her outcome was 0.8765432"


async def all_fail(arm: str, user: str) -> float:
    raise RuntimeError(TELLING_WORDS)


async def some_fail(arm: str, user: str) -> float:
    """Fail for one user in twenty: within what a cohort may lose."""
    if user in ("u7", "u27", "u47"):
        return TELLING_REWARD
    return float(arm == "b")


class Shop:
    """Opens and closes as a test says."""

    is_open = True


async def shop(arm: str, user: str) -> float:
    """Fail for everybody, test users included, while the shop is closed."""
    if not Shop.is_open:
        raise RuntimeError("the shop is closed")
    return 0.7 if arm == "b" else 0.3
