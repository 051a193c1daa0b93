"""Who lives in a world: nodes, users, their rewards, and the experiment they are in.

Every user's reward is a different multiple of 1/1024, the grid of the mechanism
``non-private``. There is no noise and no rounding, so a released sum can be recomputed
from the users in it, and nobody can be left out, added or counted twice unseen. Behind
a shuffler there is noise, all of it from the seed: what users sent can be drawn again.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import math
import time
from collections import Counter
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

from tests.support.world.schedule import (
    REWARD_FAULTS,
    SHUFFLE,
    Schedule,
    node_names,
)
from tests.support.world.threads import block
from wallflower.clients.host.assemble import NodeSetup, make_node
from wallflower.clients.node.ledger import Ledger
from wallflower.clients.node.node import Node
from wallflower.clients.rewards.local import CallableRewards
from wallflower.engines.population import agreed_policy
from wallflower.protocol.files.sections import NodeSettings, RewardSettings
from wallflower.protocol.identity.enrolment import EnrolmentKey, NodeIdentity, Trust
from wallflower.protocol.rewards.outcome_window import NO_WINDOW, OutcomeWindow
from wallflower.protocol.secure_sum.shuffle.plan import MIXED, PURE
from wallflower.strategy.config import (
    ExperimentConfig,
    ExperimentSettings,
    PolicySettings,
    PrivacySettings,
)
from wallflower.strategy.sections import (
    SecureSumSettings,
    TestSettings,
    TransportSettings,
)

PRECISION = 1024
_LOWEST = 200  # reward of the worst arm, in units of 1/1024
_CERTIFICATE_DAYS = 30
WINDOW_S = 100.0


def config_of(schedule: Schedule) -> ExperimentConfig:
    """Return the experiment of a world."""
    return ExperimentConfig(
        experiment=ExperimentSettings(
            f"world-{schedule.seed}", tuple(f"arm-{n}" for n in range(schedule.arms))
        ),
        # A shuffled batch tells more than the sum: nothing is shuffled without noise.
        privacy=PrivacySettings(
            mechanism="dist-dp" if schedule.backend == SHUFFLE else "non-private"
        ),
        policy=PolicySettings(first_batch=schedule.first_batch),
        secure_sum=SecureSumSettings(
            backend=schedule.backend,
            dropout=Fraction(schedule.dropout),
            server=schedule.server,
            shuffle=MIXED if schedule.backend == SHUFFLE else PURE,
        ),
        nodes=NodeSettings(schedule.nodes, schedule.users),
        rewards=RewardSettings(
            means=(0.5,) * schedule.arms, window_s=window_of(schedule).seconds
        ),
        transport=TransportSettings(
            stage_timeout_s=20.0,
            join_timeout_s=60.0,
        ),
        test=TestSettings(noise_seed=schedule.seed),
    )


def users_of(name: str, schedule: Schedule) -> tuple[str, ...]:
    """Name a node's users."""
    return tuple(f"{name}/{number}" for number in range(schedule.users))


def value_of(arm: int, user: str, schedule: Schedule) -> int:
    """Return a user's reward for an arm, in units of 1/1024; no two are the same."""
    node, number = user.removeprefix("node-").split("/")
    place = int(node) * schedule.users + int(number)
    people = schedule.nodes * schedule.users
    stride = next(s for s in (37, 41, 43, 47) if math.gcd(s, people) == 1)
    above = (0, schedule.gap, schedule.gap // 2)[arm]
    return _LOWEST + above + place * stride % people


def window_of(schedule: Schedule) -> OutcomeWindow:
    """Return the window of a world; where every outcome is quick there is none."""
    slow = any(fault.kind in REWARD_FAULTS for fault in schedule.faults)
    return OutcomeWindow(WINDOW_S) if slow else NO_WINDOW


def known_of(arm: int, user: str, schedule: Schedule) -> int:
    """Return what counts for a user: their reward, or 0 if it comes too late."""
    in_time = _wait_s(user, schedule) < WINDOW_S
    return value_of(arm, user, schedule) if in_time else 0


def _wait_s(user: str, schedule: Schedule) -> float:
    """Return how long a user's reward takes."""
    shares = dict.fromkeys(REWARD_FAULTS, 0.0)
    for fault in schedule.faults:
        if fault.kind in shares:
            shares[fault.kind] = max(shares[fault.kind], fault.share)
    digest = hashlib.sha256(f"{schedule.seed} {user}".encode()).digest()
    luck, pace = digest[0] / 256, digest[1] / 256
    if luck < shares["endless-rewards"]:
        return math.inf
    if luck < max(shares["slow-rewards"], shares["blocking-rewards"]):
        # Some in time, some too late, nobody so near the end that threads decide.
        slow = 2 * WINDOW_S * pace
        return slow if slow < 0.8 * WINDOW_S else slow + 0.3 * WINDOW_S
    return 0.3 * pace


def reward_function(
    schedule: Schedule, shown: Counter[str]
) -> Callable[[str, str], Any]:
    """Return the function that every node's source calls, with its slow users.

    `shown` counts how often each user was shown an arm.
    """

    def answer(arm: str, user: str) -> float:
        return value_of(int(arm.removeprefix("arm-")), user, schedule) / PRECISION

    def blocking(arm: str, user: str) -> float:
        shown[user] += 1
        block(_wait_s(user, schedule))
        return answer(arm, user)

    async def awaited(arm: str, user: str) -> float:
        shown[user] += 1
        await asyncio.sleep(_wait_s(user, schedule))
        return answer(arm, user)

    return blocking if schedule.blocking else awaited


@functools.cache
def enrolment(nodes: int, users: int) -> tuple[bytes, Mapping[str, NodeIdentity]]:
    """Certify nodes once a process: keys are dear and the same ones serve."""
    key = EnrolmentKey.generate()
    identities = {}
    for name in node_names(nodes):
        identity = NodeIdentity.generate(name)
        certificate = key.issue(
            name,
            identity.public_key,
            not_after=int(time.time()) + _CERTIFICATE_DAYS * 86_400,
            capacity=users,
        )
        identities[name] = identity.enrolled(certificate)
    return key.public_key, identities


def trust_of(schedule: Schedule) -> Trust:
    """Return whom everybody believes."""
    return Trust(enrolment(schedule.nodes, schedule.users)[0], time.time)


def make(
    schedule: Schedule,
    name: str,
    ledger: Ledger,
    shown: Counter[str],
    shufflers: tuple[str, ...] = (),
) -> Node:
    """Build one node on its ledger, with the shufflers that its users pinned."""
    key, identities = enrolment(schedule.nodes, schedule.users)
    source = CallableRewards(reward_function(schedule, shown))
    setup = NodeSetup(
        policy=agreed_policy(config_of(schedule), shufflers),
        ledger=ledger,
        source=lambda _: source,
        identity=identities.__getitem__,
        enrolment_key=key,
        noise_seed=schedule.seed,
        window=window_of(schedule),
    )
    return make_node(setup, name, users_of(name, schedule), trust_of(schedule))
