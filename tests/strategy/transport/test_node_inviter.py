from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Iterable

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from wallflower.engines.in_process_grid import InProcessGrid
from wallflower.protocol.messages import flower as flower_record
from wallflower.strategy.transport.flower import FlowerTransport
from wallflower.strategy.transport.grid import Pace
from wallflower.strategy.transport.node_inviter import InvitationPace, NodeInviter

FAST = Pace(shortest_s=0.001, longest_s=0.02, grace_s=0.1)
QUICK = InvitationPace(look_s=0.01, first_pause_s=0.01, longest_pause_s=0.05)


class InvitedNodes:
    """A ClientApp whose nodes leave the gRPC server early as often as they are told."""

    def __init__(self, early: dict[int, int] | None = None, *, crash: bool = False):
        self.early = Counter(early or {})
        self.crash = crash
        self.came: Counter[int] = Counter()
        self.seen: list[dict[str, object]] = []
        self.lock = threading.Lock()
        self.app = ClientApp()
        self.app.query("connect")(self.connect_node)

    def connect_node(self, message: Message, context: Context) -> Message:
        with self.lock:
            self.came[context.node_id] += 1
            self.seen.append(dict(message.content.config_records["wallflower"]))
            leave = self.early[context.node_id] > 0
            self.early[context.node_id] -= 1
        if leave and self.crash:
            raise MemoryError("gone")
        reason = "UnavailableError" if leave else flower_record.RUN_OVER
        record = ConfigRecord({flower_record.REASON: reason})
        return Message(RecordDict({flower_record.RECORD: record}), reply_to=message)


def invitation(flower_id: int) -> dict[str, bytes | str]:
    return {flower_record.TOKEN: f"for {flower_id}"}


async def invite(
    nodes: InvitedNodes, grid: InProcessGrid, wanted: dict[int, int]
) -> NodeInviter:
    """Send for nodes until every one came as often as wanted, and a little longer."""
    with grid:
        async with FlowerTransport(grid, pace=FAST) as port:
            inviter = NodeInviter(port, invitation, QUICK)
            async with inviter.kept(), asyncio.timeout(60):
                # The nodes live in threads: there is no event of this loop to wait for.
                while any(  # noqa: ASYNC110
                    nodes.came[n] < times for n, times in wanted.items()
                ):
                    await asyncio.sleep(0.005)
                await asyncio.sleep(0.1)
    return inviter


async def test_every_node_is_sent_for_once_with_its_own_invitation() -> None:
    nodes = InvitedNodes()
    grid = InProcessGrid(nodes.app, {7: {}, 8: {}, 9: {}})
    inviter = await invite(nodes, grid, {7: 1, 8: 1, 9: 1})
    assert nodes.came == {7: 1, 8: 1, 9: 1}
    tokens = {str(fields[flower_record.TOKEN]) for fields in nodes.seen}
    assert tokens == {"for 7", "for 8", "for 9"}
    assert inviter.sent == 3
    assert not inviter.failures


async def test_a_node_that_left_early_is_sent_for_again() -> None:
    nodes = InvitedNodes({8: 2})
    grid = InProcessGrid(nodes.app, {7: {}, 8: {}})
    inviter = await invite(nodes, grid, {7: 1, 8: 3})
    assert nodes.came == {7: 1, 8: 3}
    assert inviter.failures == {"UnavailableError": 2}


async def test_a_node_whose_process_died_is_sent_for_again() -> None:
    nodes = InvitedNodes({8: 1}, crash=True)
    grid = InProcessGrid(nodes.app, {7: {}, 8: {}})
    inviter = await invite(nodes, grid, {7: 1, 8: 2})
    assert inviter.failures == {"node-failed": 1}


class GrowingGrid(InProcessGrid):
    """Shows a node less on its first looks, and once nothing at all."""

    looks = 0

    def get_node_ids(self) -> Iterable[int]:
        self.looks += 1
        if self.looks == 2:
            raise ConnectionError("no route to the SuperLink")
        known = list(super().get_node_ids())
        return known if self.looks > 4 else known[:-1]


async def test_a_node_that_joins_later_is_sent_for_too() -> None:
    nodes = InvitedNodes()
    grid = GrowingGrid(nodes.app, {7: {}, 8: {}})
    await invite(nodes, grid, {7: 1, 8: 1})
    assert nodes.came == {7: 1, 8: 1}


async def test_leaving_the_context_ends_the_sending() -> None:
    before = asyncio.all_tasks()
    nodes = InvitedNodes({7: 10**6})
    await invite(nodes, InProcessGrid(nodes.app, {7: {}}), {7: 2})
    await asyncio.sleep(0)
    assert asyncio.all_tasks() <= before
