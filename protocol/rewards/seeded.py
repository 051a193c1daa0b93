"""Repeatable noise and rewards, so that every engine gives the same sums.

TEST ONLY: whoever knows the seed can subtract the noise. A user's bits follow from the
seed, their run-independent id, the batch and the arm, and from nothing else: not from
the node's other users, the order of requests, the transport or the secure sum.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from wallflower.protocol.noise.bits import SeededBits
from wallflower.protocol.rewards.models import Doubles, RewardModel

# Loud on purpose: said wherever a run that uses a noise seed speaks.
TEST_MODE = (
    "TEST MODE, no privacy: noise comes from a seed in the config; whoever knows the "
    "seed knows the rewards. Never use it with real people."
)


def user_id(node_id: str, pseudonym: str) -> str:
    """Name a user across nodes.

    Examples
    --------
    >>> user_id("node-7", "u3")
    'node-7/u3'
    """
    return f"{node_id}/{pseudonym}"


def noise_bits(
    seed: int, node_id: str, pseudonym: str, batch: int, arm: int
) -> SeededBits:
    """Return the bits from which one user draws rounding and noise in one cohort."""
    return SeededBits.derived(seed, "noise", user_id(node_id, pseudonym), batch, arm)


def seeded_rewards(
    model: RewardModel,
    seed: int,
    node_id: str,
    pseudonyms: Sequence[str],
    batch: int,
    arm: int,
) -> Doubles:
    """Draw each user's reward from bits of their own."""
    rewards = np.empty(len(pseudonyms))
    for index, pseudonym in enumerate(pseudonyms):
        bits = SeededBits.derived(
            seed, "reward", user_id(node_id, pseudonym), batch, arm
        )
        generator = np.random.default_rng(bits.words(4).tolist())
        rewards[index] = model.sample(arm, 1, generator)[0]
    return rewards
