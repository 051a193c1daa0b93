"""Where outcomes come from: one question, many kinds of answer.

A source is asked once per cohort for all of a node's users in it. Whatever goes wrong
with one user's reward (outside [0, 1], not a number, late, a failing source) costs only
that user: he drops out, the reason is counted, the value is never shown.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

Doubles = npt.NDArray[np.float64]

# Reasons a user drops out; stable words, counted and logged.
OUT_OF_RANGE = "reward-out-of-range"
NOT_A_NUMBER = "reward-not-a-number"
FAILED = "reward-source-failed"
LATE = "reward-late"
UNKNOWN_USER = "user-unknown"


@dataclass(frozen=True, slots=True)
class Pull:
    """The question: show these users this arm and say how it went."""

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
    """Anything that knows outcomes."""

    async def pull(self, pull: Pull) -> Sequence[object] | Doubles:
        """Give one reward per user, in order; an exception object for a failure.

        May take hours. Other cohorts and nodes are not held up by it.
        """
        ...

    async def close(self) -> None:
        """Let go of files and connections."""
        ...


class LostRewardError(Exception):
    """Stands in the place of a reward that will not come; `reason` is counted."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


async def pull_rewards(source: RewardSource, pull: Pull, timeout_s: float) -> Pulled:
    """Ask a source, screen every value, and never raise for a bad one."""
    count = len(pull.users)
    try:
        async with asyncio.timeout(timeout_s):
            values = await source.pull(pull)
    except TimeoutError:
        return _all_lost(count, LATE)
    except LostRewardError as lost:
        return _all_lost(count, lost.reason)
    except Exception:
        # Its text may quote a reward: only the fact is kept.
        return _all_lost(count, FAILED)
    if len(values) != count:
        return _all_lost(count, FAILED)
    if isinstance(values, np.ndarray) and values.dtype == np.float64:
        return _screened(values.copy(), Counter())
    reasons: Counter[str] = Counter()
    numbers = np.full(count, np.nan)
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


def _screened(numbers: Doubles, reasons: Counter[str]) -> Pulled:
    missing = np.isnan(numbers)
    outside = ~missing & ~((numbers >= 0) & (numbers <= 1))
    if missing.any():
        reasons[NOT_A_NUMBER] += int(missing.sum())
    if outside.any():
        reasons[OUT_OF_RANGE] += int(outside.sum())
        numbers[outside] = np.nan
    return Pulled(numbers, reasons)


def _all_lost(count: int, reason: str) -> Pulled:
    return Pulled(np.full(count, np.nan), {reason: count})
