"""A Flower app's own source: made of the Context of the message that is answered.

What a ClientApp kept in ``context.state``, such as a model that it has just trained, is
there for its source. Flower hands over a Context with every message, so each message
gets a source of its own, which is closed when the message is answered.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any, cast

from flwr.app import Context

from wallflower.clients.rewards.source import Rewards, RewardsOf
from wallflower.protocol.errors import UnavailableError

RewardsIn = Callable[[Context], Rewards]  # the source for one message, by its Context

_log = logging.getLogger(__name__)


class _Message:
    """The message under way in this task, and its source once somebody asked it."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.source: Rewards | None = None


_closing: set[asyncio.Task[None]] = set()  # asyncio itself keeps no task alive
_under_way: ContextVar[_Message] = ContextVar("wallflower-flower-message")


@asynccontextmanager
async def answering(context: Context) -> AsyncIterator[None]:
    """Answer a message inside the block; its source, if one was made, ends with it."""
    message = _Message(context)
    token = _under_way.set(message)
    try:
        yield
    finally:
        _under_way.reset(token)
        if message.source is not None:
            task = asyncio.create_task(_close(message.source))
            _closing.add(task)
            task.add_done_callback(_closing.discard)


async def _close(source: Rewards) -> None:
    """Close a source; neither its time nor its failure is seen in the answer."""
    try:
        await source.close()
    except Exception as error:
        # Its text may quote an outcome.
        _log.warning("a source of rewards cannot be closed (%s)", type(error).__name__)


class MessageRewards:
    """Whatever source the app makes for the message that is answered in this task."""

    def __init__(self, make: RewardsIn) -> None:
        self._make = make
        self._failures: set[str] = set()  # kinds whose traceback the log has

    def __getattr__(self, name: str) -> Any:
        """Return what the message's own source has: `pull`, `stream`, `ready`."""
        if name.startswith("__"):  # of Python itself, as for copies
            raise AttributeError(name)
        return getattr(self._source(), name)

    def _source(self) -> Rewards:
        message = _under_way.get()
        if message.source is None:
            try:
                message.source = self._make(message.context)
            except Exception as error:
                # Nobody was shown an arm yet: the node refuses, and its log says why.
                kind = type(error).__name__
                if kind not in self._failures:
                    self._failures.add(kind)
                    _log.exception("the ClientApp's rewards cannot be made")
                raise UnavailableError(f"rewards(context) raised {kind}") from None
        return message.source


def by_message(make: RewardsIn) -> RewardsOf:
    """Return the source of every node of an app, whatever its name."""
    source = cast(Rewards, MessageRewards(make))
    return lambda name: source
