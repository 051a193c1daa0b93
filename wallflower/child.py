"""A process that ends with the one that started it, however that one ends.

Whoever starts it holds a pipe to its standard input and never writes there. When that
process ends, by SIGKILL too, the kernel closes the pipe, on Linux as on macOS.
"""

from __future__ import annotations

import asyncio
import sys


async def wait_for_parent_end() -> None:
    """Return when whoever holds the other end of standard input is gone."""
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    while await reader.read(1024):
        pass  # nothing is ever said there
