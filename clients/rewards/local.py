"""The reward sources that live in the node's own process."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import inspect
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from wallflower.clients.rewards.functions import failure_of, find_function
from wallflower.clients.rewards.ready import CHECK, try_test_users
from wallflower.clients.rewards.source import (
    FAILED,
    UNKNOWN_USER,
    Doubles,
    LostRewardError,
    Pull,
    Rewards,
)
from wallflower.clients.rewards.threads import REWARD_THREADS
from wallflower.protocol.errors import ConfigError, UnavailableError
from wallflower.protocol.files.sections import RewardSettings
from wallflower.protocol.rewards.cells import read_cell
from wallflower.protocol.rewards.models import RewardModel, synthetic_rewards
from wallflower.protocol.rewards.reward_range import DEFAULT_RANGE, RewardRange
from wallflower.protocol.rewards.seeded import seeded_rewards
from wallflower.protocol.rewards.tables import dealt_out, table_rows

Rows: TypeAlias = dict[str, tuple[float | None, ...]]  # by user, a cell per arm

_log = logging.getLogger(__name__)
FUNCTION_FAILED = "reward function"  # begins what the log says of a failure

# Quick functions need no more threads than this. A call that takes longer gives its
# place to another, so that those which never return hold up nobody.
_MOST_CALLS_AT_ONCE = 64
_PLACE_FOR_S = 1.0


class SyntheticRewards:
    """Rewards drawn from a model of numbers in [0, 1], in the unit; for simulations.

    With a seed each user's reward follows from (seed, node, user, batch, arm) alone,
    whatever engine asks and in whatever order.
    """

    def __init__(
        self,
        model: RewardModel,
        seed: int | None = None,
        reward_range: RewardRange = DEFAULT_RANGE,
    ) -> None:
        self._model = model
        self._seed = seed
        self._range = reward_range
        self._generator = np.random.default_rng()

    async def pull(self, pull: Pull) -> Doubles:
        """Draw one reward per user."""
        if self._seed is None:
            drawn = self._model.sample(pull.arm, len(pull.users), self._generator)
        else:
            drawn = seeded_rewards(
                self._model,
                self._seed,
                pull.node_id,
                pseudonyms=pull.users,
                batch=pull.batch,
                arm=pull.arm,
            )
        return self._range.means(drawn)

    async def close(self) -> None:
        """Nothing to let go of."""


class TableRewards:
    """Replay of a local table: a row per user, a column per arm.

    A user's empty cell means that their outcome for that arm is not known.
    """

    def __init__(
        self, path: Path, arms: Sequence[str], user_column: str = "user"
    ) -> None:
        self._rows: Rows = read_table(path, arms, user_column)
        self._arms = tuple(arms)

    def only(self, users: Sequence[str]) -> TableRewards:
        """Return the part of the table that one of several nodes holds."""
        part = copy.copy(self)
        part._keep(users)
        return part

    def _keep(self, users: Sequence[str]) -> None:
        self._rows = {user: self._rows[user] for user in users}

    @property
    def users(self) -> tuple[str, ...]:
        """Everyone in the table."""
        return tuple(self._rows)

    def __repr__(self) -> str:
        """Hide the rewards."""
        return f"TableRewards({len(self._rows)} users)"

    async def pull(self, pull: Pull) -> Sequence[object]:
        """Look every user up."""
        return [
            self._rows[user][pull.arm]
            if user in self._rows
            else LostRewardError(UNKNOWN_USER)
            for user in pull.users
        ]

    async def ready(self, arm: int, arm_name: str) -> None:
        """Check that the arm's number means the same column here as at the server."""
        if not arm < len(self._arms) or self._arms[arm] != arm_name:
            raise UnavailableError(
                f'arm {arm} of the experiment is "{arm_name}", but the arms of this '
                f"table are {', '.join(self._arms)}; give them in the same order"
            )

    async def close(self) -> None:
        """Nothing to let go of."""


class CallableRewards:
    """Any Python function of (arm name, user), or coroutine function.

    A plain function is called in a thread and may block. A coroutine function runs on
    the node's loop and must not. It is tried on `test_users` before anybody is asked.
    The first time that it fails in a line, class, file and line are logged.
    """

    def __init__(
        self,
        function: Callable[[str, str], Any],
        test_users: Sequence[str] = (),
        reward_range: RewardRange = DEFAULT_RANGE,
    ) -> None:
        self._function = function
        self._range = reward_range
        self._test_users = tuple(test_users)
        self._failure = ""  # of a test user, in words for the function's owner
        self._failures: set[str] = set()  # of people, each logged once
        self._places = asyncio.Semaphore(_MOST_CALLS_AT_ONCE)

    async def stream(self, pull: Pull) -> AsyncGenerator[tuple[int, object], None]:
        """Call it for every user, many at once; one failure costs one user."""
        calls = [
            asyncio.create_task(self._call(place, pull, user))
            for place, user in enumerate(pull.users)
        ]
        try:
            for done in asyncio.as_completed(calls):
                yield await done
        finally:
            for call in calls:
                call.cancel()

    async def _call(self, place: int, pull: Pull, user: str) -> tuple[int, object]:
        async with self._places:
            answer = self._begin(pull, user)
            try:
                await asyncio.wait([answer], timeout=_PLACE_FOR_S)
            except asyncio.CancelledError:
                answer.cancel()
                raise
        return place, await answer

    def _begin(self, pull: Pull, user: str) -> asyncio.Future[object]:
        if inspect.iscoroutinefunction(self._function):
            return asyncio.ensure_future(self._await_function(pull, user))
        return REWARD_THREADS.call(self._call_function, pull, user)

    def _call_function(self, pull: Pull, user: str) -> object:
        try:
            return self._function(pull.arm_name, user)
        except BaseException as error:
            return self._locate_failure(pull, error)

    async def _await_function(self, pull: Pull, user: str) -> object:
        try:
            return await self._function(pull.arm_name, user)
        except BaseException as error:
            # Whatever it raises is its own failure: also what would end this task
            # (CancelledError) or the whole node (SystemExit).
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise  # the window is over
            return self._locate_failure(pull, error)

    def _locate_failure(self, pull: Pull, error: BaseException) -> LostRewardError:
        """Keep where the function failed, never its own words: they may be a reward."""
        failure = failure_of(self._function, error)
        if pull.node_id == CHECK:
            self._failure = failure
        elif failure not in self._failures:
            self._failures.add(failure)
            _log.warning(
                "%s %s: %s; counted as rewards.if-unknown",
                FUNCTION_FAILED,
                getattr(self._function, "__name__", "without a name"),
                failure,
                extra={"event": "reward-function-failed", "node_id": pull.node_id},
            )
        return LostRewardError(FAILED)

    async def ready(self, arm: int, arm_name: str) -> None:
        """Call it for the test users."""
        self._failure = ""
        try:
            await try_test_users(self, arm, arm_name, self._test_users, self._range)
        except UnavailableError as error:
            if not self._failure:
                raise
            raise UnavailableError(f"{error}: {self._failure}") from None

    async def close(self) -> None:
        """Nothing to let go of."""


def reward_source(
    settings: RewardSettings,
    node_id: str,
    arms: Sequence[str],
    seed: int | None = None,
) -> Rewards:
    """Build the source that ``[rewards]`` describes, for one node.

    `seed` makes synthetic rewards repeatable where the settings do not say it.
    """
    if settings.seed is None and seed is not None:
        settings = dataclasses.replace(settings, seed=seed)
    return SOURCES[settings.source](settings, node_id, arms)


def _synthetic(settings: RewardSettings, node_id: str, arms: Sequence[str]) -> Rewards:
    if not settings.means:
        raise ConfigError("rewards.means", "one mean per arm is missing")
    model = synthetic_rewards(
        settings.model, settings.fractions, settings.deviation_fraction
    )
    return SyntheticRewards(model, settings.seed, settings.reward_range)


def _table(settings: RewardSettings, node_id: str, arms: Sequence[str]) -> Rewards:
    assert settings.table is not None
    path = Path(str(settings.table).replace("{node}", node_id))
    return TableRewards(path, arms, settings.user_column)


def shared_tables(
    settings: RewardSettings, arms: Sequence[str], count: int
) -> list[TableRewards]:
    """Read one table of all users and give every node its part of it."""
    path = settings.shared_table
    assert path is not None
    whole = TableRewards(path, arms, settings.user_column)
    homes = dealt_out(path, settings.node_column, count)
    users: list[list[str]] = [[] for _ in range(count)]
    for user, home in zip(whole.users, homes, strict=True):
        users[home].append(user)
    return [whole.only(part) for part in users]


def _callable(settings: RewardSettings, node_id: str, arms: Sequence[str]) -> Rewards:
    function = find_function(settings.function, settings.folder)
    return CallableRewards(function, settings.test_users, settings.reward_range)


def _grpc(settings: RewardSettings, node_id: str, arms: Sequence[str]) -> Rewards:
    from wallflower.clients.rewards.service import ServiceRewards

    certificate = settings.certificate
    return ServiceRewards(
        settings.address,
        None if certificate is None else certificate.read_bytes(),
        settings.test_users,
        settings.reward_range,
    )


SOURCES: dict[str, Callable[[RewardSettings, str, Sequence[str]], Rewards]] = {
    "synthetic": _synthetic,
    "table": _table,
    "callable": _callable,
    "grpc": _grpc,
}


def read_table(path: Path, arms: Sequence[str], user_column: str) -> Rows:
    """Read user → one cell per arm; the cells themselves are screened when pulled."""
    rows: Rows = {}
    for where, (name, *cells) in table_rows(path, (user_column, *arms)):
        user = "" if name is None else str(name).strip()
        if not user:
            raise ConfigError(where, "no user")
        if user in rows:
            raise ConfigError(where, "its user stands in a row above")
        rows[user] = tuple(read_cell(cell) for cell in cells)
    if not rows:
        raise ConfigError(str(path), "holds no users")
    return rows
