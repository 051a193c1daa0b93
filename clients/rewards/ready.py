"""Can a source of outcomes be asked now? Nobody is shown an arm to find out.

A source that is down would use up everybody who is invited: it loses their rewards
although they saw the arm. So it is asked before a node agrees to a cohort and again
before it shows the arm. What a source does to answer is its own affair (`KnowsReady`);
one that cannot say is taken to be ready. *Test users* are nobody: pseudonyms that a
file sets apart, whose outcomes are screened like real ones and thrown away.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Protocol, TypeGuard

from wallflower.clients.rewards.source import Pull, Rewards, pull_rewards
from wallflower.protocol.errors import ConfigError, RefusalError, UnavailableError
from wallflower.protocol.refusals import RefusalCode
from wallflower.protocol.rewards.outcome_window import NO_WINDOW
from wallflower.protocol.rewards.reward_range import RewardRange

_log = logging.getLogger(__name__)

READY_S = 10.0  # a source that takes longer to say is not ready
CHECK = "check"  # stands for run, cohort and node in a question about test users
OUT_OF_RANGE = "reward-out-of-range"  # clipped in a run, refused of a test user


class KnowsReady(Protocol):
    """A reward source that can tell whether it may be asked."""

    async def ready(self, arm: int, arm_name: str) -> None:
        """Return if users could be shown this arm now, else raise UnavailableError."""
        ...


def _knows(source: object) -> TypeGuard[KnowsReady]:
    return hasattr(source, "ready")


async def require_ready(source: Rewards, arm: int, arm_name: str) -> None:
    """Raise UnavailableError if nobody could be shown this arm now.

    The text is for the owner of the source: a node tells the server only the fact.
    """
    if not _knows(source):
        return
    try:
        async with asyncio.timeout(READY_S):
            await source.ready(arm, arm_name)
    except UnavailableError:
        raise
    except TimeoutError:
        raise UnavailableError(
            f'the reward source said nothing about arm "{arm_name}" in {READY_S:g} s'
        ) from None
    except Exception as error:
        # Its text may quote a reward: only its kind is kept.
        raise UnavailableError(
            f'the reward source fails for arm "{arm_name}" ({type(error).__name__})'
        ) from None


async def refuse_while_down(
    source: Rewards, arm: int, arm_name: str, node_id: str
) -> None:
    """Refuse while a node's source is down: no reason to use users up.

    Where outcomes are kept, and what is wrong there, stays on the node.
    """
    try:
        await require_ready(source, arm, arm_name)
    except UnavailableError as error:
        _log.warning(
            "reward source not ready: %s",
            error,
            extra={"event": RefusalCode.REWARD_SOURCE_DOWN.value, "node_id": node_id},
        )
        raise RefusalError(
            RefusalCode.REWARD_SOURCE_DOWN,
            "the node's source of outcomes cannot be asked now",
        ) from None


async def lost_of(
    source: Rewards,
    arm: int,
    arm_name: str,
    users: Sequence[str],
    reward_range: RewardRange,
) -> Mapping[str, int]:
    """Count, by reason, whose outcomes are not usable; the outcomes are thrown away."""
    pull = Pull(
        CHECK, CHECK, 0, arm=arm, arm_name=arm_name, node_id=CHECK, users=tuple(users)
    )
    pulled = await pull_rewards(source, pull, NO_WINDOW, reward_range)
    return Counter(pulled.reasons) + Counter({OUT_OF_RANGE: pulled.clipped})


async def try_test_users(
    source: Rewards,
    arm: int,
    arm_name: str,
    users: Sequence[str],
    reward_range: RewardRange,
) -> None:
    """Refuse a source that gives its test users no usable outcome."""
    lost = await lost_of(source, arm, arm_name, users, reward_range)
    if lost:
        raise UnavailableError(
            f'arm "{arm_name}": no usable reward for {sum(lost.values())} of '
            f"{len(users)} test users ({', '.join(sorted(lost))})"
        )


def check_test_users(test_users: Sequence[str], users: Sequence[str]) -> None:
    """Refuse to try a source on somebody who may be asked in earnest."""
    real = set(test_users).intersection(users)
    if real:
        raise ConfigError(
            "rewards.test-users", f'"{min(real)}" is a real user; name somebody else'
        )
