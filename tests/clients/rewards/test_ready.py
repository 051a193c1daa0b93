from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.clients.rewards.test_service import Service, served
from tests.clients.rewards.test_source import Given
from wallflower.clients.rewards.local import (
    TableRewards,
)
from wallflower.clients.rewards.ready import check_test_users, require_ready
from wallflower.clients.rewards.service import ServiceRewards
from wallflower.clients.rewards.source import (
    Pull,
)
from wallflower.protocol.errors import ConfigError, UnavailableError


async def test_a_service_is_asked_about_nobody_whether_it_is_ready() -> None:
    service = Service()
    async with served(service) as address:
        source = ServiceRewards(address, test_users=("fast-test",))
        await require_ready(source, 0, "a")
        await source.close()
    assert [list(asked.users) for asked in service.pulled] == [[], ["fast-test"]]


@pytest.mark.parametrize(
    ("user", "why"),
    [("liar", "reward-out-of-range"), ("absent", "reward-source-failed")],
)
async def test_a_service_that_gives_test_users_no_reward_in_range_is_not_ready(
    user: str, why: str
) -> None:
    async with served(Service()) as address:
        source = ServiceRewards(address, test_users=(user,))
        with pytest.raises(UnavailableError, match=why) as caught:
            await require_ready(source, 0, "a")
        await source.close()
    assert "17.5" not in str(caught.value)


async def test_a_service_that_is_down_is_not_ready_and_says_what_to_do() -> None:
    source = ServiceRewards("127.0.0.1:1")
    with pytest.raises(UnavailableError, match=r"UNAVAILABLE.*rewards\.address"):
        await require_ready(source, 0, "a")
    await source.close()


async def test_a_source_that_cannot_say_is_taken_to_be_ready() -> None:
    class Watched(Given):
        asked = 0

        async def pull(self, pull: Pull) -> Sequence[object]:
            self.asked += 1
            return self.values

    source = Watched(0.5)
    await require_ready(source, 0, "a")
    assert source.asked == 0


async def test_what_a_source_says_of_its_failure_is_not_repeated() -> None:
    class Talkative(Given):
        async def ready(self, arm: int, arm_name: str) -> None:
            raise ValueError("the last reward was 0.4711")

    with pytest.raises(UnavailableError, match="ValueError") as caught:
        await require_ready(Talkative(), 0, "a")
    assert "4711" not in str(caught.value)


async def test_a_table_whose_arms_are_in_another_order_is_not_ready(
    tmp_path: Path,
) -> None:
    path = tmp_path / "t.csv"
    path.write_text("user,a,b\nx,0,1\n")
    source = TableRewards(path, ("b", "a"))
    await require_ready(source, 1, "a")
    with pytest.raises(UnavailableError, match="same order"):
        await require_ready(source, 0, "a")


def test_a_test_user_is_nobody_real() -> None:
    with pytest.raises(ConfigError, match='"u7" is a real user'):
        check_test_users(("u7", "x"), ("u1", "u7"))
