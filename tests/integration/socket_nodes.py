"""The nodes of an experiment in a process of their own, behind a socket."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from tests.integration.socket_transport import connect_node
from wallflower.clients.node.ledger import Ledger
from wallflower.engines.population import hosted_nodes
from wallflower.strategy.config import load_config


async def serve(socket: Path, experiment: Path, ledger_file: Path) -> None:
    """Connect every node of the file until the server is done."""
    with Ledger(ledger_file) as ledger:
        nodes = hosted_nodes(load_config(experiment), ledger, None)
        async with asyncio.TaskGroup() as group:
            for name, node in nodes.items():
                group.create_task(connect_node(socket, name, node))


if __name__ == "__main__":
    asyncio.run(serve(*map(Path, sys.argv[1:4])))
