"""A reply leaves by one call of the system."""

from __future__ import annotations

import asyncio
from typing import cast

from wallflower.serve.http_protocol import JoinedWrites


class Written:
    """A transport that remembers what was done to it."""

    def __init__(self) -> None:
        self.done: list[bytes | str] = []

    def write(self, data: bytes) -> None:
        self.done.append(data)

    def close(self) -> None:
        self.done.append("closed")


def joined() -> tuple[JoinedWrites, Written]:
    written = Written()
    transport = cast("asyncio.Transport", written)
    return JoinedWrites(transport, asyncio.get_running_loop()), written


async def test_what_is_written_in_one_step_is_sent_at_once() -> None:
    transport, written = joined()
    for part in (b"head ", b"body"):
        transport.write(part)
    assert written.done == []
    await asyncio.sleep(0)
    assert written.done == [b"head body"]
    transport.write(b"next")
    await asyncio.sleep(0)
    assert written.done == [b"head body", b"next"]


async def test_what_was_written_is_sent_before_the_end() -> None:
    transport, written = joined()
    transport.write(b"last words")
    transport.close()
    await asyncio.sleep(0)
    assert written.done == [b"last words", "closed"]
