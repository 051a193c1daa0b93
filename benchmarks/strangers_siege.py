"""The strangers of `benchmarks.strangers`: a process beside, until its input ends."""

from __future__ import annotations

import asyncio
import sys

from tests.support.half_requests import besiege_page
from tests.support.siege import besieged


async def main(port: int, connections: int, paths: str) -> None:
    """Lay siege to a gRPC server, or without paths to a page."""
    until = asyncio.to_thread(sys.stdin.read)
    if paths:
        async with besieged(port, paths.split(","), connections) as siege:
            await until
        print(f"          {siege.calls:,} hostile calls")
        return
    strangers = asyncio.create_task(besiege_page(port, connections))
    await until
    strangers.cancel()
    await asyncio.wait([strangers])


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]))
