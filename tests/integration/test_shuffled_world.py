"""Whatever breaks around a shuffler: no shuffled batch twice, no wrong sum, nobody
asked again.

The worlds of `test_world`, with the real shuffler as one more process that can die:
while it collects, between writing a cohort down and giving its shuffled batch, and
after that. `make soak-world KINDS=shuffle` runs as many as one likes.
"""

from __future__ import annotations

import shutil
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.world.invariants import problems
from tests.support.world.schedule import (
    GRPC,
    LOCAL,
    PHASE_FAULTS,
    SERVER,
    SHUFFLE,
    SHUFFLER,
    Fault,
    Schedule,
    drawn,
)
from tests.support.world.simulation import simulate
from tests.support.world.soak import run_worlds
from wallflower.shuffler.home import ReleasedCohorts

CALM = Schedule(
    seed=1,
    transport=GRPC,
    backend=SHUFFLE,
    server="malicious",
    nodes=5,
    users=20,
    arms=2,
    first_batch=12,
    dropout="1/10",
    gap=400,
    blocking=False,
    faults=(),
)


# Not traced: the same lines again and again, which other worlds run too.
@pytest.mark.slow  # dozens of deployments
@pytest.mark.no_cover
@pytest.mark.parametrize("first", range(0, 12, 3))
def test_nothing_that_must_hold_breaks_under_seeded_faults(first: int) -> None:
    tally = run_worlds(range(first, first + 3), [SHUFFLE])
    assert not tally.failures, "\n".join(tally.failures)
    assert tally.settings[SHUFFLE] == 3


@pytest.mark.parametrize("transport", [GRPC, LOCAL])
def test_a_world_without_faults_finishes_at_the_first_start(transport: str) -> None:
    outcome = simulate(replace(CALM, transport=transport))
    assert (outcome.ended, outcome.starts, outcome.broken) == ("finished", 1, [])


@pytest.mark.slow  # two deployments
def test_the_same_seed_is_the_same_course_of_events() -> None:
    one, other = simulate(drawn(4, [SHUFFLE])), simulate(drawn(4, [SHUFFLE]))
    assert one.trace == other.trace


@pytest.mark.parametrize("target", [SHUFFLER, SERVER])
@pytest.mark.parametrize("kind", PHASE_FAULTS)
def test_who_dies_in_the_middle_of_a_cohort_is_survived(kind: str, target: str) -> None:
    struck = CALM.only([Fault(kind, at=2.0, target=target, lasts=1.0)])
    outcome = simulate(struck)
    assert outcome.injected[kind] == 1
    assert (outcome.ended, outcome.broken) == ("finished", [])


def test_worlds_with_a_shuffler_leave_the_others_as_they_were() -> None:
    for seed in range(20):
        plain, shuffled = drawn(seed), drawn(seed, [SHUFFLE])
        assert shuffled.faults[: len(plain.faults)] == plain.faults
        assert plain.backend != shuffled.backend == SHUFFLE


# --- the checks see what they are there for


def test_a_shuffler_that_forgets_what_it_gave_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The server dies when the shuffled batch has left, and asks again when it is back.
    dies = Fault("killed-at-release", at=1.0, target=SERVER, lasts=1.0)
    twice_asked = CALM.only([dies])
    assert simulate(twice_asked).broken == []
    monkeypatch.setattr(ReleasedCohorts, "claim", lambda self, context: True)
    assert any("2 shuffled batches" in found for found in simulate(twice_asked).broken)


def test_a_wrong_sum_is_seen(tmp_path: Path) -> None:
    assert simulate(CALM, keep=tmp_path).broken == []
    assert problems(CALM, tmp_path, "finished") == []
    shutil.rmtree(tmp_path / SHUFFLER)
    database = sqlite3.connect(tmp_path / SERVER / "journal.sqlite")
    database.execute(
        "UPDATE cohort SET result = json_set(result, '$.released', "
        "CAST(1 + json_extract(result, '$.released') AS TEXT)) WHERE arm = 0"
    )
    database.commit()
    database.close()
    found = problems(CALM, tmp_path, "finished")
    assert any("its users give" in problem for problem in found)
