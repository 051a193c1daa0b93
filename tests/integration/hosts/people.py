"""People who come from a host of their own: ``URL CA FOLDER RUN_ID AT_ONCE``.

Each is a real visitor with a new invitation, a ledger and a node. They come until the
run is over. What the last line says, as JSON, is how many were shown what, and who were
told that they count.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import sys
from collections import Counter
from pathlib import Path

from wallflower.clients.host.assemble import make_node
from wallflower.clients.host.visitor import Person, Visitor
from wallflower.clients.node.ledger import Ledger
from wallflower.clients.transport.visitor_calls import poll_by_http
from wallflower.engines.population import hosted_setup
from wallflower.protocol.identity.enrolment import EnrolmentKey
from wallflower.protocol.visitors import INVITED, Invitation
from wallflower.stated_experiment import experiment_of


async def come(
    url: str, root: bytes, folder: Path, run_id: str, at_once: int
) -> tuple[Counter[str], list[str]]:
    """Come one after another, so many at the same time."""
    inviter = EnrolmentKey.from_private_bytes((folder / "inviter.seed").read_bytes())
    config = experiment_of(folder / "experiment.toml")
    shown, told = Counter[str](), list[str]()
    poll = poll_by_http(url, root)
    with Ledger(folder / "people.sqlite") as ledger:

        async def one_after_another() -> None:
            while True:
                invitation = Invitation.issue(inviter, not_after=2_000_000_000)
                identity = invitation.identity
                name, arrival = identity.node_id, secrets.token_bytes(16)
                setup = hosted_setup(config, ledger, {name: identity}.get, None)
                person = Person(run_id, INVITED, name, identity, arrival)
                node = make_node(setup, name, [name])
                seen = await Visitor(person, node, setup.policy).take_part(poll)
                shown[seen.reason or "measured"] += 1
                if seen.measured:
                    told.append(name)
                    print(len(told), flush=True)
                if seen.reason == "run-over":
                    return
                await asyncio.sleep(0.05 if seen.measured else 0.5)

        async with asyncio.TaskGroup() as group:
            for _ in range(at_once):
                group.create_task(one_after_another())
    return shown, told


if __name__ == "__main__":
    _, url, ca, folder, run_id, at_once = sys.argv
    root = Path(ca).read_bytes()
    seen, counted = asyncio.run(come(url, root, Path(folder), run_id, int(at_once)))
    print(json.dumps({"shown": seen, "told": counted}), flush=True)
