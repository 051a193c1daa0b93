"""A policy is one class behind `Policy`, its name and a line that finds it.

`EvenSplit` asks every arm the same number of people to the end, as a classical A/B test
does. No module of the package has heard of it, and it uses nothing of the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path

import pytest

from tests.support.run_fixtures import SMALL, write
from tests.wallflower.test_run_commands import invoke
from wallflower.engines.local import run_local
from wallflower.engines.registry import EngineJob
from wallflower.protocol.errors import InputError
from wallflower.strategy import policy_names
from wallflower.strategy.bandit import policies
from wallflower.strategy.bandit.policy import (
    USERS_EXHAUSTED,
    ArmView,
    CohortRequest,
    CohortSum,
)
from wallflower.strategy.bandit.recorded import State
from wallflower.strategy.bandit.spec import PolicySpec
from wallflower.strategy.config import load_config
from wallflower.strategy.store.events import Event, RoundFinished
from wallflower.strategy.store.journal import Journal
from wallflower.strategy.store.run_store import requests_of

NAME = "even-split"


class EvenSplit:
    """Batches of one size for all arms that nobody took out, until users run out."""

    def __init__(self, spec: PolicySpec, state: State | None = None) -> None:
        self.spec = spec.resolved()
        self.finished: str | None = None
        self._batch = 1
        self._left = self.spec.horizon
        self._users = [0] * self.spec.arms
        self._heard = [0] * self.spec.arms
        self._sums = [Fraction(0)] * self.spec.arms
        self._out: dict[int, tuple[int, str]] = {}
        if state is not None:
            self._restore(state)

    @property
    def users(self) -> int:
        return sum(self._users)

    def _active(self) -> list[int]:
        return [arm for arm in range(self.spec.arms) if arm not in self._out]

    def next_cohorts(self) -> Sequence[CohortRequest]:
        active = [] if self.finished else self._active()
        size = min(self.spec.first_batch, self._left // max(len(active), 1))
        wrap = self.spec.shares.wrap(self._batch, self.spec.arms)
        return [CohortRequest(self._batch, arm, size, wrap) for arm in active]

    def observe(self, outcomes: Sequence[CohortSum]) -> None:
        asked = {
            cohort_request.arm: cohort_request.size
            for cohort_request in self.next_cohorts()
        }
        for one in outcomes:
            asked[one.arm] = one.cohort_size
            self._heard[one.arm] += one.survivors
            self._sums[one.arm] += Fraction(one.total, one.precision)
        for arm, users in asked.items():
            self._users[arm] += users
        self._batch += 1
        self._left = self.spec.horizon - self.users
        if self._left < 2 * len(self._active()):
            self.finished = "horizon"

    def arms(self) -> Sequence[ArmView]:
        return [self._view(arm) for arm in range(self.spec.arms)]

    def _view(self, arm: int) -> ArmView:
        known = self._sums[arm] / self._heard[arm] if self._heard[arm] else None
        estimate = None if known is None else float(known)
        batch, note = self._out.get(arm, (None, ""))
        racing = batch is None
        # It decides nothing, so it claims nothing: every mean is from 0 to 1.
        return ArmView(
            arm=arm,
            users=self._users[arm],
            estimate=estimate,
            lower=0.0,
            upper=1.0,
            active=racing,
            eliminated_in=batch,
            note=note,
            retired=not racing,
        )

    def limit(self, users: int) -> None:
        self._left = min(users, self.spec.horizon - self.users)
        if self._left < 2 * len(self._active()):
            self.finished = USERS_EXHAUSTED

    def stop(self, reason: str) -> None:
        self.finished = self.finished or reason

    def retire(self, arm: int, reason: str) -> None:
        if arm not in self._active() or len(self._active()) == 1:
            raise InputError("arm", arm, f"one of several in {self._active()}")
        self._out[arm] = self._batch - 1, reason

    def assignment(self, users: int) -> Mapping[int, int]:
        best = max(self._active(), key=lambda arm: self._view(arm).estimate or 0.0)
        return {best: users}

    def state(self) -> State:
        return {
            "schema_version": 1,
            "spec": self.spec.as_json(),
            "finished": self.finished,
            "batch": self._batch,
            "left": self._left,
            "users": list(self._users),
            "heard": list(self._heard),
            "sums": [str(value) for value in self._sums],
            "out": {str(arm): list(what) for arm, what in self._out.items()},
        }

    def _restore(self, state: State) -> None:
        self.finished = state["finished"]
        self._batch, self._left = state["batch"], state["left"]
        self._users, self._heard = list(state["users"]), list(state["heard"])
        self._sums = [Fraction(value) for value in state["sums"]]
        self._out = {int(arm): tuple(what) for arm, what in state["out"].items()}


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    """What somebody adds to `policy_names.py` and `policies.py`: a name and a line."""
    monkeypatch.setattr(policy_names, "POLICIES", (*policy_names.POLICIES, NAME))
    monkeypatch.setitem(policies._POLICIES, NAME, EvenSplit)


def settings(folder: Path) -> Path:
    return write(folder, SMALL.replace("[policy]", f'[policy]\nname = "{NAME}"'))


@pytest.mark.parametrize("engine", ["fast", "local"])
def test_it_is_run_and_verified(engine: str, tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    for words in (
        ("run", settings(tmp_path), "--engine", engine, "--run-dir", run_dir),
        ("verify", run_dir),
        ("report", run_dir, "--output", tmp_path / "page.html"),
    ):
        code, output = invoke(*words)
        assert code == 0, output
    with Journal.read(run_dir) as journal:
        last = journal.last_round()
    # It rules nothing out, so nobody may read that nothing could be ruled out, or that
    # its intervals hold.
    shown = (tmp_path / "page.html").read_text()
    assert f"{NAME} rules no arm out" in shown
    assert "could be ruled out" not in shown
    assert "told apart" not in shown
    assert "hold together" not in shown
    assert last is not None
    # 720 people, 40 an arm and batch: all arms are asked as often, but for the few
    # more that a draw from uneven nodes invites.
    assert last.finished in ("horizon", USERS_EXHAUSTED)
    assert all(view.active for view in last.views)
    users = [view.users for view in last.views]
    assert max(users) - min(users) < 40 < min(users)


def test_a_run_of_it_that_was_stopped_goes_on(tmp_path: Path) -> None:
    run_dir, config = tmp_path / "run", load_config(settings(tmp_path))
    Journal.create(run_dir, "run", config, "local").close()

    async def pause(event: Event) -> None:
        if isinstance(event, RoundFinished):
            requests_of(run_dir).request_pause()

    asyncio.run(run_local(EngineJob(config, run_dir, "run", pause)))
    for words in (
        ("retire", run_dir, "c", "--reason", "too dear"),
        ("resume", run_dir),
        ("verify", run_dir),
    ):
        code, output = invoke(*words)
        assert code == 0, output
    with Journal.read(run_dir) as journal:
        last = journal.last_round()
    assert last is not None
    assert last.number > 1
    assert [view.active for view in last.views] == [True, True, False]
    assert last.views[2].users < last.views[0].users
