"""Noise as a node in service draws it: from the system, through everything between.

Random numbers of the operating system cannot be seeded, so each check here fails by
chance, at the rate that it names.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from tests.support.statistics import chi_square_p_value
from wallflower.clients.consent import ClientPolicy
from wallflower.clients.host.assemble import NodeSetup, make_node
from wallflower.clients.node.ledger import Ledger
from wallflower.clients.node.randomizer import Randomize, encode_many
from wallflower.clients.rewards.local import SyntheticRewards
from wallflower.protocol.noise.bits import OsBits
from wallflower.protocol.privacy.mechanism import CohortMechanism, mechanism_named
from wallflower.protocol.rewards.models import synthetic_rewards
from wallflower.protocol.wire.cohort_pb2 import CohortSpec
from wallflower.strategy.run.analyzer import analyze

# The same lines again and again, which others run too: not traced, twice as fast.
pytestmark = [pytest.mark.no_cover, pytest.mark.os_randomness]

FALSE_ALARM_RATE = 1e-9
ROOT = Path(__file__).parents[3]
DRAWS = 6_000


def production(folder: Path) -> Randomize:
    """Return the randomizer of a node as every engine and the ClientApp make it."""
    source = SyntheticRewards(synthetic_rewards("bernoulli", (0.5, 0.5), 0.1))
    with Ledger(folder / "ledger.sqlite") as ledger:
        setup = NodeSetup(ClientPolicy(), ledger, lambda name: source)
        return make_node(setup, "n", ["u"])._parts.randomize


def cohort(name: str) -> CohortMechanism:
    return mechanism_named(name, Fraction(1, 2)).for_cohort(8, 4, Fraction(1, 10**6))


def noise(randomize: Randomize, name: str, users: int, draws: int) -> list[int]:
    """Take the known rewards away from what a node of this cohort would send."""
    mechanism = cohort(name)
    modulus = 1 << 61
    spec = CohortSpec(modulus=modulus)
    names = [f"u{i}" for i in range(users)]
    known, rewards = mechanism.precision * users, np.ones(users)
    drawn = (randomize(spec, mechanism, names, rewards) for _ in range(draws))
    return [(value - known + modulus // 2) % modulus - modulus // 2 for value in drawn]


@pytest.mark.parametrize("users", [1, 3])
@pytest.mark.parametrize("name", ["dist-dp", "dist-rdp", "dist-cdp", "local-dp"])
def test_a_node_in_service_adds_noise_of_exactly_its_law(
    name: str, users: int, tmp_path: Path
) -> None:
    law = cohort(name).total_noise(users)
    assert law is not None
    values = np.array(noise(production(tmp_path), name, users, DRAWS))
    assert chi_square_p_value(values, law) > FALSE_ALARM_RATE
    assert law.variance() > 1
    # Neither does one draw tell the next.
    together = stats.spearmanr(values[:-1], values[1:]).pvalue
    assert together > FALSE_ALARM_RATE


def test_the_server_of_a_trusted_run_adds_noise_of_exactly_its_law() -> None:
    mechanism = cohort("central-dp")
    law = mechanism.server_noise()
    assert law is not None
    values = np.array([analyze(mechanism, 0, 1 << 61) for _ in range(DRAWS)])
    assert chi_square_p_value(values, law) > FALSE_ALARM_RATE


def test_rewards_in_service_are_rounded_without_bias() -> None:
    ups = int((encode_many(np.full(200_000, 0.3), 7, OsBits()) == 3).sum())
    share = float(Fraction(0.3) * 7 - 2)
    assert stats.binomtest(ups, 200_000, share).pvalue > FALSE_ALARM_RATE


@pytest.mark.parametrize("size", [1, 7, 5000])
def test_every_bit_of_the_source_in_service_is_fair(size: int) -> None:
    bits = OsBits()
    words = np.concatenate([bits.words(size) for _ in range(-(-20_000 // size))])
    ones = np.unpackbits(words.view(np.uint8)).reshape(len(words), 64).sum(axis=0)
    worst = float(np.abs(ones - len(words) / 2).max())
    # 128 tails of a binomial variable.
    chance = 128 * float(stats.binom.sf(len(words) / 2 + worst - 1, len(words), 0.5))
    assert chance > FALSE_ALARM_RATE


def test_no_word_is_ever_handed_out_twice() -> None:
    bits = OsBits()
    sizes = itertools.islice(itertools.cycle([1, 2, 1, 30, 3, 200, 1]), 1500)
    words = np.concatenate([bits.words(size) for size in sizes])
    # Two of 51,000 words agree by chance less than once in 10⁹ runs.
    assert len(np.unique(words)) == len(words)


def test_two_processes_never_add_the_same_noise(tmp_path: Path) -> None:
    theirs = subprocess.run(
        [sys.executable, "-m", "tests.clients.node.test_production_noise"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    ).stdout
    # 64 draws with more than one bit of entropy each: equal once in 2^64 runs.
    ours = noise(production(tmp_path), "local-dp", 1, 64)
    assert theirs.startswith("[")
    assert ours != json.loads(theirs)


def test_a_forked_node_adds_other_noise_than_its_parent(tmp_path: Path) -> None:
    randomize = production(tmp_path)
    noise(randomize, "local-dp", 1, 1)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, repr(noise(randomize, "local-dp", 1, 40)).encode())
        os._exit(0)
    ours = repr(noise(randomize, "local-dp", 1, 40)).encode()
    theirs = os.read(reader, 1 << 16)
    os.waitpid(child, 0)
    os.close(reader)
    os.close(writer)
    assert len(theirs) > 40
    assert ours != theirs


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        print(noise(production(Path(name)), "local-dp", 1, 64))
