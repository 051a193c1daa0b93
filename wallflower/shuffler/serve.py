"""A shuffler as a process."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from prometheus_client import start_http_server

from wallflower.child import wait_for_parent_end
from wallflower.protocol.files.keyfiles import REVOKED, read_public
from wallflower.protocol.files.watched import RevokedSerials
from wallflower.protocol.identity.enrolment import Trust
from wallflower.shuffler.home import open_home
from wallflower.shuffler.service import Limits, Service
from wallflower.shuffler.shuffled_batch import Shuffler


async def serve(
    folder: Path,
    listen: str,
    hosts: Sequence[str],
    enrolment: Path | None,
    metrics: str,
    *,
    child: bool = False,
) -> None:
    """Run a shuffler until a signal; print its address and fingerprint when ready.

    A `child` also ends with the process that started it.
    """
    home = open_home(folder, hosts)
    trust = None
    if enrolment is not None:
        revoked = RevokedSerials(enrolment.with_name(REVOKED))
        trust = Trust(read_public(enrolment), time.time, revoked)
    shuffler = Shuffler(home.key, home.released, trust)
    service = Service(shuffler, home.tls, home.token, Limits())
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    port = await service.open(listen)
    if metrics:
        host, _, number_text = metrics.rpartition(":")
        start_http_server(int(number_text), host, service.registry)
    host = listen.rpartition(":")[0]
    ready = {"shuffler": f"{host}:{port}", "fingerprint": home.fingerprint}
    sys.stdout.write(json.dumps(ready) + "\n")
    sys.stdout.flush()
    try:
        async with asyncio.TaskGroup() as group:
            beside = [group.create_task(_end_with_parent(stop))] if child else []
            await stop.wait()
            for task in beside:
                task.cancel()
    finally:
        await service.close()


async def _end_with_parent(stop: asyncio.Event) -> None:
    await wait_for_parent_end()
    stop.set()
