"""Users' devices for `benchmarks.shuffle`, as a process beside.

Reads parcels from a file, says that it is ready, waits for a line, takes every parcel
to the shuffler over a connection of its own, and says how much CPU time that took.
"""

from __future__ import annotations

import asyncio
import json
import pickle
import sys
import time
from pathlib import Path

from wallflower.clients.node.upload import deliver
from wallflower.protocol.secure_sum.session import ShufflerUpload

AT_ONCE = 32  # devices that come at the same time


async def brought(uploads: list[ShufflerUpload]) -> None:
    """Let every device dial, hand over and hang up."""
    waiting = iter(uploads)

    async def devices() -> None:
        for upload in waiting:
            await deliver(upload)

    await asyncio.gather(*(devices() for _ in range(AT_ONCE)))


def main() -> None:
    """Do as the parent says."""
    uploads = [
        ShufflerUpload(*fields)
        for fields in pickle.loads(Path(sys.argv[1]).read_bytes())
    ]
    print("ready", flush=True)
    sys.stdin.readline()
    started = time.process_time()
    asyncio.run(brought(uploads))
    print(json.dumps({"cpu_s": time.process_time() - started}), flush=True)


if __name__ == "__main__":
    main()
