"""A gRPC server under a real limit on open files; run as a program by
test_descriptors.py.

Reads the limits from the command line, says on one line of JSON how it opened, then
serves until its standard input closes.
"""

from __future__ import annotations

import asyncio
import json
import logging
import resource
import sys

from tests.support.grpc_fixtures import AUTHORITY, House, open_grpc_server
from wallflower.protocol.errors import UnavailableError
from wallflower.strategy.transport.grpc.admission import FirstUseKeys
from wallflower.strategy.transport.grpc.settings import GrpcServerSettings


class History(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def say(**what: object) -> None:
    print(json.dumps(what), flush=True)


async def main(soft: int, hard: int, streams: int) -> None:
    heard = History()
    logging.getLogger("wallflower").addHandler(heard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    settings = GrpcServerSettings(most_streams=streams, refusals_burst=10_000)
    try:
        async with open_grpc_server(House(), settings, FirstUseKeys()) as (_, port):
            limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
            root = AUTHORITY.certificate.decode()
            say(port=port, limit=limit, warned=heard.lines, root=root)
            await asyncio.to_thread(sys.stdin.read)
    except UnavailableError as error:
        say(error=str(error))


if __name__ == "__main__":
    asyncio.run(main(*map(int, sys.argv[1:])))
