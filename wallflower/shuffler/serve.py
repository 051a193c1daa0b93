"""A shuffler as a process, from its folder to its end."""

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
from wallflower.shuffler.deposits import Deposits
from wallflower.shuffler.home import open_home
from wallflower.shuffler.service import Limits, Service
from wallflower.shuffler.shuffled_batch import Shuffler


async def serve(
    folder: Path,
    listen: str,
    hosts: Sequence[str],
    enrolment: Path | None,
    metrics: str,
    hold_s: float,
    *,
    child: bool = False,
) -> None:
    """Serve until told to stop; says on its first line where, and which key it has.

    A `child` ends with the process that started it, too.
    """
    home = open_home(folder, hosts)
    trust = None
    if enrolment is not None:
        revoked = RevokedSerials(enrolment.with_name(REVOKED))
        trust = Trust(read_public(enrolment), time.time, revoked)
    limits = Limits(hold_s=hold_s)
    deposits = Deposits(home.key, home.given, home.token, limits.most_bytes)
    service = Service(
        Shuffler(home.key, home.given, trust, deposits),
        home.tls,
        home.token,
        limits,
        deposits,
    )
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
