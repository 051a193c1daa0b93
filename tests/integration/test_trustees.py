"""Trustees in homes of their own, on the gRPC server of a run whose people arrive."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from deploy.harness.processes import free_port
from wallflower.clients.host import invitations
from wallflower.clients.host.home import NodeHome
from wallflower.clients.host.trustee import keep_trustee
from wallflower.clients.node.ledger import Ledger
from wallflower.clients.transport.grpc_client import Invitation
from wallflower.engines.arrivals import Arrivals, Keys
from wallflower.engines.population import hosted_setup
from wallflower.engines.registry import EngineJob
from wallflower.engines.visitors import TRUSTEES, check_visitors, run_visitors
from wallflower.protocol.errors import WallflowerError
from wallflower.protocol.files.sections import RewardSettings
from wallflower.results.result import read_result
from wallflower.strategy.config import (
    ExperimentConfig,
    ExperimentSettings,
    PolicySettings,
)
from wallflower.strategy.run.verify import verify
from wallflower.strategy.sections import TransportSettings, VisitorSettings
from wallflower.strategy.store import events
from wallflower.strategy.store.journal import Journal
from wallflower.strategy.store.seat_store import SeatStore

NAMES = tuple(f"trustee-{number}" for number in range(5))
RUN = "with-trustees"


def config(port: int) -> ExperimentConfig:
    return ExperimentConfig(
        ExperimentSettings("test", ("a", "b"), horizon=400),
        policy=PolicySettings(first_batch=30),
        rewards=RewardSettings(means=(0.02, 0.98)),
        transport=TransportSettings(port=port, join_timeout_s=60),
        visitors=VisitorSettings("open", trustees=NAMES),
    )


def make_home(folder: Path, name: str) -> NodeHome:
    folder.mkdir(parents=True)
    (folder / "node.toml").write_text(f'[node]\nname = "{name}"\nusers = 0\n')
    return NodeHome(folder)


async def invited(run_dir: Path, name: str) -> Invitation:
    path = run_dir / TRUSTEES / f"{name}.json"
    while not path.exists():  # noqa: ASYNC110 (a file does not report)
        await asyncio.sleep(0.01)
    return invitations.read(path)


class Place:
    """One run, its trustees, and people who come."""

    def __init__(self, folder: Path) -> None:
        self.config, self.run_dir = config(free_port()), folder / "run"
        Journal.create(self.run_dir, RUN, self.config, "serve").close()
        self.homes = {name: make_home(folder / name, name) for name in NAMES}
        self.react: Callable[[events.Event], None] = lambda event: None

    async def listen(self, event: events.Event) -> None:
        self.react(event)

    async def operate(self) -> None:
        await run_visitors(EngineJob(self.config, self.run_dir, RUN, self.listen))

    async def hold(self, name: str) -> str:
        invitation = await invited(self.run_dir, name)
        return await keep_trustee(self.homes[name], invitation, patience_s=60)


@asynccontextmanager
async def people(place: Place, folder: Path) -> AsyncIterator[None]:
    keys = Keys.keep("open", folder)
    with SeatStore.open(place.run_dir) as store, Ledger(folder / "people") as ledger:
        setup = hosted_setup(place.config, ledger, keys.visitor, None)
        coming = asyncio.create_task(Arrivals(store, setup, None).come())
        try:
            yield
        finally:
            coming.cancel()
            await asyncio.wait([coming])


async def test_trustees_hold_the_key_until_the_run_is_over(tmp_path: Path) -> None:
    place = Place(tmp_path)
    async with people(place, tmp_path), asyncio.TaskGroup() as group:
        group.create_task(place.operate())
        held = [group.create_task(place.hold(name)) for name in NAMES]
    assert [task.result() for task in held] == ["finished"] * 5
    with Journal.read(place.run_dir) as journal:
        assert read_result(journal).winner == "b"
        assert [p for check in verify(journal) for p in check.problems] == []


class _KilledError(Exception):
    """The server's process is gone."""


async def test_server_and_trustees_are_restarted_while_seats_are_answered(
    tmp_path: Path,
) -> None:
    place = Place(tmp_path)

    def die(event: events.Event) -> None:
        if isinstance(event, events.CohortProgress) and event.heard > 5:
            raise _KilledError

    place.react = die
    async with people(place, tmp_path):
        first = [asyncio.create_task(place.hold(name)) for name in NAMES]
        with pytest.raises(_KilledError):
            await place.operate()
        for task in first:
            task.cancel()
        await asyncio.wait(first)
        place.react = lambda event: None
        async with asyncio.TaskGroup() as group:
            group.create_task(place.operate())
            again = [group.create_task(place.hold(name)) for name in NAMES]
    assert [task.result() for task in again] == ["finished"] * 5
    with Journal.read(place.run_dir) as journal:
        result = read_result(journal)
        assert (result.winner, result.invited, result.answered) == ("b", 60, 60)
        assert len(journal.dealings()) == 1
        assert [p for check in verify(journal) for p in check.problems] == []


@pytest.mark.parametrize(
    ("visitors", "port", "message"),
    [
        (None, 9000, "a \\[visitors\\] table"),
        (VisitorSettings("open"), 9000, "the names of 5 or more trustees"),
        (VisitorSettings("open", trustees=NAMES), 0, "a fixed port"),
        (VisitorSettings("invited", trustees=NAMES), 9000, "inviter"),
        (
            VisitorSettings("invited", Path("nowhere.pub"), trustees=NAMES),
            9000,
            "nowhere.pub: no such file; `wallflower invite` makes it",
        ),
        (VisitorSettings("enrolled", trustees=NAMES), 9000, "enrolment"),
    ],
)
def test_what_a_run_with_trustees_lacks_is_said_before_it_begins(
    visitors: VisitorSettings | None, port: int, message: str
) -> None:
    stated = ExperimentConfig(
        ExperimentSettings("test", ("a", "b"), horizon=400),
        transport=TransportSettings(port=port),
        visitors=visitors,
    )
    with pytest.raises(WallflowerError, match=message):
        check_visitors(stated)
