"""The last round takes who is left; a record that shrinks or ends early is refused."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from pathlib import Path

import pytest

from tests.support.orchestration import World, config, world
from wallflower.protocol.files.sections import NodeSettings, RewardSettings
from wallflower.strategy.bandit.policy import CohortRequest, Policy
from wallflower.strategy.config import (
    ExperimentConfig,
    ExperimentSettings,
    PolicySettings,
)
from wallflower.strategy.run import drawing, recruiting
from wallflower.strategy.run.drawing import draw_round
from wallflower.strategy.run.recruiting import Recruiter
from wallflower.strategy.run.registry import UserRegistry
from wallflower.strategy.run.verify import verify
from wallflower.strategy.sections import SecureSumSettings
from wallflower.strategy.store import events
from wallflower.strategy.store.entries import LIMITED
from wallflower.strategy.store.events import Event
from wallflower.strategy.store.journal import Journal

WRAP = Fraction(1, 10**6)


def alike(
    users: int | tuple[int, ...] = 40, policy: str = "elimination", **sections: object
) -> ExperimentConfig:
    """Two arms alike, which no sum will tell apart, on 20 nodes."""
    ratio = Fraction(2) if policy != "elimination" else None
    return config(
        experiment=ExperimentSettings(
            "test", ("a", "b"), 100_000, failure_probability=WRAP
        ),
        policy=PolicySettings(name=policy, first_batch=60, ratio=ratio),
        nodes=NodeSettings(20, users),
        rewards=RewardSettings(means=(0.5, 0.5)),
        **sections,
    )


def problems(run_dir: Path) -> list[str]:
    with Journal.read(run_dir) as journal:
        return [problem for check in verify(journal) for problem in check.problems]


def ended(there: World) -> events.RoundFinished:
    return [e for e in there.heard if isinstance(e, events.RoundFinished)][-1]


def limits(run_dir: Path) -> list[str]:
    with Journal.read(run_dir) as journal:
        return [e.subject for e in journal.entries() if e.kind == LIMITED]


@pytest.mark.parametrize("policy", ["elimination", "dp-imed"])
async def test_the_last_round_asks_the_users_who_are_left(
    policy: str, tmp_path: Path
) -> None:
    async with world(tmp_path, alike(policy=policy)) as there:
        await there.run()
    assert ended(there).finished == "users-exhausted"
    assert problems(there.run_dir) == []
    assert limits(there.run_dir)
    # A planned batch of 1.5 times the last would have left a fifth and more unasked.
    assert ended(there).invited > 0.9 * 800


async def test_nodes_per_cohort_never_end_a_run_while_others_have_users(
    tmp_path: Path,
) -> None:
    few = alike(secure_sum=SecureSumSettings(nodes_per_cohort=4))
    async with world(tmp_path, few) as there:
        await there.run()
    assert problems(there.run_dir) == []
    assert ended(there).invited > 0.9 * 800


def test_nodes_that_have_run_dry_do_not_inflate_an_invitation() -> None:
    experiment = alike()
    registry = UserRegistry(1, seed=0)
    for number in range(16):
        registry.add_node(f"dry-{number}", [f"u{n}" for n in range(2)])
    for number in range(4):
        registry.add_node(f"wet-{number}", [f"u{n}" for n in range(50)])
    registry.mark_invited((f"dry-{number}", ("u0", "u1")) for number in range(16))
    next_cohorts = [CohortRequest(1, arm, 60, WRAP) for arm in (0, 1)]
    draws = draw_round(registry, experiment, next_cohorts, registry.nodes)
    assert [draw.floor.cohort_size for draw in draws] == [60, 60]


class StoppedError(Exception):
    """The server was stopped."""


async def test_a_limit_outlives_the_server(tmp_path: Path) -> None:
    async with world(tmp_path, alike()) as there:

        def react(event: Event) -> None:
            if isinstance(event, events.RoundStarted) and limits(there.run_dir):
                raise StoppedError

        there.react = react
        with pytest.raises(StoppedError):
            await there.run()
        before = Counter(limits(there.run_dir))
        there.react = lambda event: None
        await there.run()
    # The round that was cut short used its users up: those left are counted anew.
    assert Counter(limits(there.run_dir)) >= before
    assert problems(there.run_dir) == []


# --- what a lying operator could write


async def test_a_run_that_ends_although_a_smaller_round_could_be_asked_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def is_exhausted(self: Recruiter, policy: Policy) -> bool:
        return not drawing.can_fill_round(
            self._registry, self._config, policy.next_cohorts()
        )

    monkeypatch.setattr(Recruiter, "is_exhausted", is_exhausted)
    async with world(tmp_path, alike()) as there:
        await there.run()
    assert ended(there).finished == "users-exhausted"
    (found,) = problems(there.run_dir)
    assert "but enough of the 800 users may be asked" in found


async def test_a_round_that_shrinks_although_all_could_be_asked_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def limit_round(self: Recruiter, number: int, policy: Policy) -> None:
        if number == 2:
            self._journal.note_limited(number, 130)
            policy.limit(130)

    monkeypatch.setattr(Recruiter, "limit_round", limit_round)

    async def over(self: Recruiter, policy: Policy) -> bool:
        return policy.users > 200

    monkeypatch.setattr(Recruiter, "is_exhausted", over)
    async with world(tmp_path, alike()) as there:
        await there.run()
    found = problems(there.run_dir)
    assert any("but all that was planned could be asked" in said for said in found)


async def test_a_round_that_shrinks_more_than_it_must_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    most = drawing.find_largest_limit

    def fewer(
        registry: UserRegistry, experiment: ExperimentConfig, policy: Policy
    ) -> int | None:
        users = most(registry, experiment, policy)
        return None if users is None else max(2 * 60, users // 2)

    monkeypatch.setattr(recruiting, "find_largest_limit", fewer)
    async with world(tmp_path, alike()) as there:
        await there.run()
    found = problems(there.run_dir)
    assert any("may be asked" in problem for problem in found)


async def test_a_limit_of_another_round_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = Journal.note_limited
    monkeypatch.setattr(
        Journal, "note_limited", lambda journal, n, users: write(journal, n + 1, users)
    )
    async with world(tmp_path, alike()) as there:
        await there.run()
    assert any("but says round" in problem for problem in problems(there.run_dir))
