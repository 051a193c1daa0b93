"""What gRPC itself costs a shuffler, for `benchmarks.shuffle`, as a process beside.

A service of one method over TLS, with a shuffler's keys, that takes a deposit, looks at
nothing and answers the same bytes to everybody: no shuffler that is reached by gRPC for
Python can be cheaper. Says where it is and serves until it is told to end.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from pathlib import Path

import grpc

from wallflower.protocol.wire.shuffle_pb2 import DepositAnswer
from wallflower.shuffler.home import open_home
from wallflower.shuffler.service import SERVICE


async def serve(folder: Path, receipt: bytes) -> None:
    """Be a service that does nothing."""
    answer = DepositAnswer(receipt=receipt).SerializeToString()

    async def nothing(body: bytes, context: object) -> bytes:
        return answer

    tls = open_home(folder, ["127.0.0.1"]).tls
    server = grpc.aio.server()
    handlers = {"Deposit": grpc.unary_unary_rpc_method_handler(nothing)}
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(SERVICE, handlers),)
    )
    credentials = grpc.ssl_server_credentials([(tls.private_key, tls.certificate)])
    port = server.add_secure_port("127.0.0.1:0", credentials)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await server.start()
    sys.stdout.write(json.dumps({"shuffler": f"127.0.0.1:{port}"}) + "\n")
    sys.stdout.flush()
    await stop.wait()
    await server.stop(grace=5.0)


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]), bytes.fromhex(sys.argv[2])))
