"""Where outcomes come from: one question, many kinds of answer.

A source is asked once per cohort for all of a node's users in it. Whatever goes wrong
with one user's reward (outside [0, 1], not a number, late, a failing source) costs only
that user: he drops out, the reason is counted, the value is never shown. The deadline
is each user's own: what was heard of the others by then is kept.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Protocol, TypeGuard, cast, runtime_checkable

import numpy as np
import numpy.typing as npt

Doubles = npt.NDArray[np.float64]

# Reasons a user drops out; stable words, counted and logged.
OUT_OF_RANGE = "reward-out-of-range"
NOT_A_NUMBER = "reward-not-a-number"
FAILED = "reward-source-failed"
LATE = "reward-late"
UNKNOWN_USER = "user-unknown"

_UNSAID_S = 3600.0


@dataclass(frozen=True, slots=True)
class Pull:
    """The question: show these users this arm and say how it went.

    Attributes
    ----------
    run_id, cohort_id, batch : where in the experiment it is asked.
    arm, arm_name : by its place in the experiment's file, and by name.
    node_id, users : pseudonyms that live on this node.
    """

    run_id: str
    cohort_id: str
    batch: int
    arm: int
    arm_name: str
    node_id: str
    users: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Pulled:
    """One number per user, NaN for who dropped out; why is counted."""

    values: Doubles
    reasons: Mapping[str, int] = field(default_factory=dict)

    def __repr__(self) -> str:
        """Show how many, never what."""
        return f"Pulled({len(self.values)} users, lost={dict(self.reasons)})"


class RewardSource(Protocol):
    """Anything that knows all outcomes at the same time."""

    async def pull(self, pull: Pull) -> Sequence[object] | Doubles:
        """Give one reward per user, in order; an exception object for a failure."""
        ...

    async def close(self) -> None:
        """Let go of files and connections."""
        ...


@runtime_checkable
class RewardStream(Protocol):
    """Anything that learns of one outcome after the other."""

    def stream(self, pull: Pull) -> AsyncGenerator[tuple[int, object], None]:
        """Give (place of the user, reward) as it becomes known, in any order.

        May take hours. Other cohorts and nodes are not held up by it.
        """
        ...

    async def close(self) -> None:
        """Let go of files and connections."""
        ...


def streams(source: Rewards) -> TypeGuard[RewardStream]:
    """Tell whether a source learns of one outcome after the other."""
    # isinstance looks at a protocol's every attribute anew, for every pull.
    return hasattr(source, "stream")


Rewards = RewardSource | RewardStream
RewardsOf = Callable[[str], Rewards]  # the source of a node, by its name


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a node waits for its users' rewards.

    Without `timeout_s` as long as the server says that it waits. `hold` lets no answer
    leave before the time is over, so that how long it takes tells nothing about when,
    or whether, a reward became known.
    """

    timeout_s: float | None = None
    hold: bool = False

    def within(self, told_s: float) -> Patience:
        """Wait no longer than the server does; 0 if it did not say."""
        if not told_s > 0:
            return self
        return _patience(self.timeout_s, told_s, hold=self.hold)


@lru_cache(maxsize=64)
def _patience(own_s: float | None, told_s: float, *, hold: bool) -> Patience:
    return Patience(told_s if own_s is None else min(own_s, told_s), hold)


class LostRewardError(Exception):
    """Stands in the place of a reward that will not come; `reason` is counted."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


async def pull_rewards(source: Rewards, pull: Pull, patience: Patience) -> Pulled:
    """Ask a source, screen every value, and never raise for a bad one."""
    loop = asyncio.get_running_loop()
    seconds = _UNSAID_S if patience.timeout_s is None else patience.timeout_s
    deadline = loop.time() + seconds
    values: Sequence[object] | Doubles
    if streams(source):
        values = await _streamed(source, pull, deadline)
    else:
        values = await _all_at_once(cast(RewardSource, source), pull, deadline)
    if patience.hold:
        await asyncio.sleep(max(0.0, deadline - loop.time()))
    if isinstance(values, np.ndarray):
        return _screened(values.astype(np.float64))
    return _screened_one_by_one(values)


async def _streamed(
    source: RewardStream, pull: Pull, deadline: float
) -> Sequence[object]:
    """Collect until the deadline; who was not heard by then, or by the end, is lost."""
    heard: dict[int, object] = {}
    missing = FAILED
    try:
        async with (
            asyncio.timeout_at(deadline),
            aclosing(source.stream(pull)) as answers,
        ):
            async for place, value in answers:
                heard.setdefault(place, value)
                if len(heard) == len(pull.users):
                    break
    except TimeoutError:
        missing = LATE
    except LostRewardError as lost:
        missing = lost.reason
    except Exception:
        # Its text may quote a reward: only the fact is kept.
        missing = FAILED
    return [
        heard.get(place, LostRewardError(missing)) for place in range(len(pull.users))
    ]


async def _all_at_once(
    source: RewardSource, pull: Pull, deadline: float
) -> Sequence[object] | Doubles:
    count = len(pull.users)
    try:
        async with asyncio.timeout_at(deadline):
            values = await source.pull(pull)
    except TimeoutError:
        return [LostRewardError(LATE)] * count
    except LostRewardError as lost:
        return [lost] * count
    except Exception:
        # Its text may quote a reward: only the fact is kept.
        return [LostRewardError(FAILED)] * count
    if len(values) != count:
        return [LostRewardError(FAILED)] * count
    return values


def _screened_one_by_one(values: Sequence[object]) -> Pulled:
    reasons: Counter[str] = Counter()
    numbers = np.full(len(values), np.nan)
    for index, value in enumerate(values):
        if isinstance(value, LostRewardError):
            reasons[value.reason] += 1
            continue
        number = _number(value)
        if number is None:
            reasons[FAILED if isinstance(value, Exception) else NOT_A_NUMBER] += 1
        elif 0 <= number <= 1:
            numbers[index] = number
        else:
            reasons[NOT_A_NUMBER if number != number else OUT_OF_RANGE] += 1
    return Pulled(numbers, reasons)


def _number(value: object) -> float | None:
    if isinstance(value, int | float | np.floating | np.integer):
        try:
            return float(value)
        except OverflowError:
            return float("inf")
    return None


def _screened(numbers: Doubles) -> Pulled:
    if len(numbers) == 1 and 0 <= numbers.item() <= 1:
        return Pulled(numbers)
    good = (numbers >= 0) & (numbers <= 1)
    if good.all():
        return Pulled(numbers)
    missing = np.isnan(numbers)
    outside = ~missing & ~good
    reasons = {NOT_A_NUMBER: int(missing.sum()), OUT_OF_RANGE: int(outside.sum())}
    numbers[outside] = np.nan
    return Pulled(numbers, {word: users for word, users in reasons.items() if users})
