"""Where outcomes come from: one question, many kinds of answer.

A source is asked once per cohort for all of a node's users in it. Everybody who is
asked about counts: whatever goes wrong with one user's outcome (not a number, late, a
failing source), the value that is stated for it stands in its place. What went wrong is
for the node's own log. Outcomes are mapped to [0, 1] by the experiment's range; one
outside it is clipped to its nearer end.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Protocol, TypeGuard, cast, runtime_checkable

import numpy as np
import numpy.typing as npt

from wallflower.protocol.numbers import counted
from wallflower.protocol.rewards.outcome_window import OutcomeWindow
from wallflower.protocol.rewards.reward_range import DEFAULT_RANGE, RewardRange

Doubles = npt.NDArray[np.float64]

# Why an outcome is not known; stable words for the node's own log, never sent.
NOT_A_NUMBER = "reward-not-a-number"
FAILED = "reward-source-failed"
LATE = "reward-late"
UNKNOWN_USER = "user-unknown"

_log = logging.getLogger(__name__)

# What is done with outcomes when they are known falls inside the window, too: nothing
# but arithmetic that takes the same time for all of them comes after its end.
_SETTLE_S = 0.05


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
    """One number in [0, 1] per user; why outcomes are not known is counted.

    `clipped` counts outcomes that lay outside the range. Both counts follow from
    outcomes, so that they never leave the node.
    """

    values: Doubles
    reasons: Mapping[str, int] = field(default_factory=dict)
    clipped: int = 0

    def __repr__(self) -> str:
        """Show how many, never what."""
        return f"Pulled({len(self.values)} users)"


class RewardSource(Protocol):
    """Anything that knows all outcomes at the same time."""

    async def pull(self, pull: Pull) -> Sequence[object] | Doubles:
        """Return one reward per user, in order; an exception object for a failure.

        What is not said at the end of the node's window counts as not known.
        """
        ...

    async def close(self) -> None:
        """Close files and connections."""
        ...


@runtime_checkable
class RewardStream(Protocol):
    """Anything that learns of one outcome after the other."""

    def stream(self, pull: Pull) -> AsyncGenerator[tuple[int, object], None]:
        """Return (place of the user, reward) as it becomes known, in any order.

        May take hours. Other cohorts and nodes are not held up by it.
        """
        ...

    async def close(self) -> None:
        """Close files and connections."""
        ...


def streams(source: Rewards) -> TypeGuard[RewardStream]:
    """Return whether a source learns of one outcome after the other."""
    # isinstance looks at a protocol's every attribute anew, for every pull.
    return hasattr(source, "stream")


class NoRewards:
    """The source of a node that hosts nobody: it is never asked."""

    async def pull(self, pull: Pull) -> Sequence[object]:
        """Return nothing, for nobody."""
        return ()

    async def close(self) -> None:
        """Close nothing."""


Rewards = RewardSource | RewardStream
RewardsOf = Callable[[str], Rewards]  # the source of a node, by its name


class LostRewardError(Exception):
    """Stands in the place of a reward that will not come; `reason` is counted."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


async def pull_rewards(
    source: Rewards,
    pull: Pull,
    window: OutcomeWindow,
    reward_range: RewardRange = DEFAULT_RANGE,
) -> Pulled:
    """Ask a source and map every outcome to [0, 1]; returns at the window's end.

    Without a window it returns as soon as all outcomes are known. Never raises for a
    bad outcome or a failing source.
    """
    loop = asyncio.get_running_loop()
    end = loop.time() + window.limit_s
    settle_s = min(_SETTLE_S, window.limit_s / 10)
    values = await _ask(source, pull, end - settle_s, settle_s)
    if isinstance(values, np.ndarray):
        pulled = _screen(values.astype(np.float64), reward_range, window.if_unknown)
    else:
        pulled = _screen_one_by_one(values, reward_range, window.if_unknown)
    if pulled.clipped:
        _log_clipped(pull, pulled.clipped, reward_range)
    if pulled.reasons:
        _log_unknown(pull, pulled.reasons)
    if window.seconds is not None:
        await asyncio.sleep(max(0.0, end - loop.time()))
    return pulled


def _log_clipped(pull: Pull, clipped: int, reward_range: RewardRange) -> None:
    """Tell the node's owner, and nobody else: the count follows from outcomes."""
    _log.warning(
        "%s outside rewards.range, %s; clipped to its nearer end",
        counted(clipped, "outcome"),
        reward_range,
        extra={
            "event": "outcomes-clipped",
            "node_id": pull.node_id,
            "cohort_id": pull.cohort_id,
        },
    )


def _log_unknown(pull: Pull, reasons: Mapping[str, int]) -> None:
    """Count what is not known in the log of the node, by reason."""
    counts = ", ".join(f"{count} {reason}" for reason, count in sorted(reasons.items()))
    _log.info(
        "%d of %s not known, counted as rewards.if-unknown: %s",
        sum(reasons.values()),
        counted(len(pull.users), "outcome"),
        counts,
        extra={
            "event": "outcomes-unknown",
            "node_id": pull.node_id,
            "cohort_id": pull.cohort_id,
        },
    )


@dataclass(slots=True)
class _Heard:
    """What a source has said so far: single outcomes by place, or all of them."""

    count: int
    single: dict[int, object] = field(default_factory=dict)
    whole: Sequence[object] | Doubles | None = None
    missing: str = LATE  # why the others are not known

    def values(self) -> Sequence[object] | Doubles:
        if self.whole is not None:
            return self.whole
        lost = LostRewardError(self.missing)
        return [self.single.get(place, lost) for place in range(self.count)]


async def _ask(
    source: Rewards, pull: Pull, deadline: float, settle_s: float
) -> Sequence[object] | Doubles:
    """Return what a source says until the deadline, whatever it does or raises.

    It works in a task of its own: how it ends is not how the node's work ends, and one
    that does not let itself be cancelled is left behind.
    """
    heard = _Heard(len(pull.users))
    asking = asyncio.create_task(_listen(source, pull, heard))
    try:
        left = max(0.0, deadline - asyncio.get_running_loop().time())
        await asyncio.wait([asking], timeout=left)
        values = heard.values()
    finally:
        asking.cancel()
    if not asking.done():
        await asyncio.wait([asking], timeout=settle_s)
    return values


async def _listen(source: Rewards, pull: Pull, heard: _Heard) -> None:
    try:
        if streams(source):
            await _listen_to_stream(source, pull, heard)
        else:
            values = await cast(RewardSource, source).pull(pull)
            if len(values) == heard.count:
                heard.whole = values
        heard.missing = FAILED
    except LostRewardError as lost:
        heard.missing = lost.reason
    except BaseException:
        # Its text may quote a reward: only the fact is kept. A source may raise
        # anything, also what would end a task or a process.
        heard.missing = FAILED


async def _listen_to_stream(source: RewardStream, pull: Pull, heard: _Heard) -> None:
    async with aclosing(source.stream(pull)) as answers:
        async for place, value in answers:
            if 0 <= place < heard.count:
                heard.single.setdefault(place, value)
            if len(heard.single) == heard.count:
                return


def _screen_one_by_one(
    values: Sequence[object], reward_range: RewardRange, if_unknown: float
) -> Pulled:
    reasons: Counter[str] = Counter()
    clipped = 0
    numbers = np.full(len(values), if_unknown, dtype=np.float64)
    for index, value in enumerate(values):
        if isinstance(value, LostRewardError):
            reasons[value.reason] += 1
            continue
        number = _number(value)
        if number is None:
            reasons[FAILED if isinstance(value, Exception) else NOT_A_NUMBER] += 1
        elif math.isfinite(number):
            # The same steps for every value: how long they take tells nothing.
            clipped += not reward_range.contains(number)
            numbers[index] = reward_range.to_fraction(number)
        else:
            reasons[NOT_A_NUMBER] += 1
    return Pulled(numbers, reasons, clipped)


def _number(value: object) -> float | None:
    if isinstance(value, int | float | np.floating | np.integer):
        try:
            return float(value)
        except OverflowError:
            return float("inf")
    return None


def _screen(numbers: Doubles, reward_range: RewardRange, if_unknown: float) -> Pulled:
    known = np.isfinite(numbers)
    outside = known & (
        (numbers < float(reward_range.low)) | (numbers > float(reward_range.high))
    )
    missing = len(numbers) - int(known.sum())
    return Pulled(
        np.where(known, reward_range.to_fractions(numbers), if_unknown),
        {NOT_A_NUMBER: missing} if missing else {},
        int(outside.sum()),
    )
