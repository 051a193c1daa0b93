"""Outcomes that differ in every way that a server might notice."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable


async def _bought(user: str) -> object:
    return 1.0


async def _did_not_buy(user: str) -> object:
    return 0.0


async def _never_known(user: str) -> object:
    await asyncio.Event().wait()
    return 1.0


async def _failed(user: str) -> object:
    raise KeyError(user)


async def _cancelled(user: str) -> object:
    raise asyncio.CancelledError


async def _left(user: str) -> object:
    raise SystemExit(3)


async def _no_number(user: str) -> object:
    return "a lot"


KINDS: tuple[Callable[[str], Awaitable[object]], ...] = (
    _bought,
    _did_not_buy,
    _never_known,
    _failed,
    _cancelled,
    _left,
    _no_number,
)
shown: list[str] = []  # to whom an arm was shown


async def outcome(arm: str, user: str) -> object:
    """Show an arm; what comes of it follows from the user's number."""
    shown.append(user)
    return await KINDS[int(user.removeprefix("u"))](user)
