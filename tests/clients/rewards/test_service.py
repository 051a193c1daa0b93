from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
import pytest

from tests.clients.rewards.test_source import ROOT, LeapAfter, ask, pull
from wallflower.clients.rewards.service import ServiceRewards
from wallflower.clients.rewards.source import pull_rewards
from wallflower.protocol.errors import InputError
from wallflower.protocol.rewards.outcome_window import NO_WINDOW
from wallflower.protocol.wire import rewards_pb2, rewards_pb2_grpc


async def test_a_late_user_of_a_service_is_the_only_one_not_known() -> None:
    async with served(Service()) as address:
        source = LeapAfter(ServiceRewards(address), heard=1)
        pulled = await ask(source, "fast1", "slow1", window_s=3600)
    assert pulled.values.tolist() == [0.5, 0.0]
    assert pulled.reasons == {"reward-late": 1}


class Service(rewards_pb2_grpc.RewardSourceServicer):
    """Answers `fast` users at once, `slow` ones when released, `gone` ones never."""

    def __init__(self) -> None:
        self.release = asyncio.Event()
        self.asked = asyncio.Event()
        self.pulled: list[rewards_pb2.PullRequest] = []

    async def Pull(  # noqa: N802
        self, request: rewards_pb2.PullRequest, context: object
    ) -> AsyncIterator[rewards_pb2.Reward]:
        self.pulled.append(request)
        self.asked.set()
        for user in request.users:
            if user == "liar":
                yield rewards_pb2.Reward(user=user, value=17.5)
            elif user == "absent":
                yield rewards_pb2.Reward(user=user, failure="no-show")
            elif user.startswith("fast"):
                yield rewards_pb2.Reward(user=user, value=0.5)
                yield rewards_pb2.Reward(user=user, value=0.9)
                yield rewards_pb2.Reward(user="somebody-else", value=0.9)
        if any(user.startswith("slow") for user in request.users):
            await self.release.wait()
            for user in request.users:
                if user.startswith("slow"):
                    yield rewards_pb2.Reward(user=user, value=1.0)


@asynccontextmanager
async def served(service: Service) -> AsyncIterator[str]:
    server = grpc.aio.server()
    rewards_pb2_grpc.add_RewardSourceServicer_to_server(  # type: ignore[no-untyped-call]
        service, server
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(0)


async def test_a_service_answers_and_its_lies_and_failures_are_counted() -> None:
    service = Service()
    async with served(service) as address:
        pulled = await ask(ServiceRewards(address), "fast1", "liar", "absent", "gone")
    assert pulled.values[:2].tolist() == [0.5, 1.0]
    assert (pulled.clipped, pulled.reasons) == (1, {"reward-source-failed": 2})
    assert service.pulled[0].arm_name == "a"


async def test_a_slow_reward_blocks_no_other_question() -> None:
    service = Service()
    async with served(service) as address:
        source = ServiceRewards(address)
        slow = asyncio.create_task(
            pull_rewards(source, pull("slow1", "fast1"), NO_WINDOW)
        )
        await service.asked.wait()
        fast = await pull_rewards(source, pull("fast2"), NO_WINDOW)
        assert fast.values.tolist() == [0.5]
        assert not slow.done()
        service.release.set()
        assert (await slow).values.tolist() == [1.0, 0.5]
        await source.close()


async def test_an_unreachable_service_loses_its_users() -> None:
    pulled = await ask(ServiceRewards("127.0.0.1:1"), "a", "b")
    assert pulled.reasons == {"reward-source-failed": 2}


def test_rewards_never_travel_in_clear_over_a_network() -> None:
    with pytest.raises(InputError, match="never sent in clear"):
        ServiceRewards("hospital.example:7070")
    ServiceRewards("unix:/run/rewards.sock")
    ServiceRewards("localhost:7070")
    ServiceRewards("[::1]:7070")


async def test_the_example_server_answers_everyone_it_is_asked_for() -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "examples/reward_server.py",
        "--delay=0.1",
        "--no-show=0",
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        line = (await asyncio.wait_for(process.stdout.readline(), 60)).decode()
        users = tuple(f"u{i}" for i in range(20))
        pulled = await ask(ServiceRewards(line.split()[-1]), *users)
    finally:
        process.terminate()
        await process.wait()
    assert set(pulled.values.tolist()) <= {0.0, 1.0}
    assert not pulled.reasons
