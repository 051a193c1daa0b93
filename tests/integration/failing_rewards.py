"""Rewards that fail for some users, for tests of what is said about them."""

from __future__ import annotations


async def all_fail(arm: str, user: str) -> float:
    raise RuntimeError("the shop is closed")


async def some_fail(arm: str, user: str) -> float:
    """Fail for one user in twenty: within what a cohort may lose."""
    if user in ("u7", "u27", "u47"):
        return 1.5
    return float(arm == "b")
