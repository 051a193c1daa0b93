"""The users of an arm are the people in its sums; who was asked stands beside them."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.strategy.run.test_orchestrator import garble, once_asked
from tests.support.orchestration import World, config, world
from tests.wallflower.results.test_page import Page
from tests.wallflower.test_run_commands import invoke
from wallflower.protocol.errors import UnavailableError
from wallflower.strategy.run.run_state import round_after_retirement
from wallflower.strategy.run.verify import verify
from wallflower.strategy.sections import TransportSettings
from wallflower.strategy.store import events
from wallflower.strategy.store.journal import Journal


@pytest.fixture
async def there(tmp_path: Path) -> World:
    """The first group of arm a is void; later ones lack the people of one node."""
    async with world(tmp_path) as there:
        garble(there, "b1-a0-t1-")
        there.react = once_asked(lambda: there.port.gone.update(["node-18"]))
        await there.run()
        return there


def counted(run_dir: Path) -> Mapping[str, tuple[int, int]]:
    """Return people in sums and people asked, by arm, from the bare journal."""
    in_sums: Counter[int] = Counter()
    asked: Counter[int] = Counter()
    with Journal.read(run_dir) as journal:
        arms = {one.cohort_id: one.arm for one in journal.cohorts()}
        for one in journal.cohorts():
            in_sums[one.arm] += 0 if one.result is None else one.result.survivors
        for cohort_id, _, users in journal.used():
            asked[arms[cohort_id]] += len(users)
    return {name: (in_sums[arm], asked[arm]) for arm, name in enumerate("ab")}


async def test_people_in_no_sum_are_not_users_of_an_arm(there: World) -> None:
    truth = counted(there.run_dir)
    assert truth["a"][1] - truth["a"][0] > 60  # a whole group was void
    assert truth["b"][1] > truth["b"][0] > 0
    last = there.heard[-1]
    assert isinstance(last, events.RoundFinished)
    told = {"ab"[view.arm]: (view.users, view.asked) for view in last.views}
    assert told == truth
    assert sum(asked for _, asked in told.values()) == last.invited
    assert sum(users for users, _ in told.values()) == last.answered


async def test_every_place_says_who_counts_and_who_was_asked(there: World) -> None:
    truth = counted(there.run_dir)
    status = json.loads(invoke("status", there.run_dir, "--format", "json")[1])
    assert {a["name"]: (a["users"], a["asked"]) for a in status["arms"]} == truth
    rows = list(csv.DictReader(io.StringIO(invoke("export", there.run_dir)[1])))
    ends = {row["arm"]: (int(row["users"]), int(row["asked"])) for row in rows}
    assert ends == truth
    said = " ".join(invoke("status", there.run_dir)[1].split())
    for users, asked in truth.values():
        assert f" {users:,} of {asked:,} " in said
    assert "users: people in the arm's sums, of those who were asked" in said
    assert invoke("report", there.run_dir)[0] == 0
    page = Page(there.run_dir / "report.html")
    shown = {row[0].strip(): row[4] for row in page.table("Estimates after")}
    assert shown == {
        name: f"{users:,} of {asked:,}" for name, (users, asked) in truth.items()
    }
    assert "people: those in the arm’s sums, of those who were asked" in page.flat


async def test_people_asked_before_a_restart_stay_counted(tmp_path: Path) -> None:
    """Two cohorts of every arm are void before the restart: both must count."""
    experiment = config(transport=TransportSettings(attempts=2))
    async with world(tmp_path, experiment) as there:
        there.react = once_asked(
            lambda: there.port.gone.update(f"node-{i}" for i in range(10))
        )
        with pytest.raises(UnavailableError, match="no cohort of round 1 gave a sum"):
            await there.run()
        there.react = lambda event: None
        there.port.gone.clear()
        await there.run()
    truth = counted(there.run_dir)
    assert all(asked - users >= 30 for users, asked in truth.values())
    with Journal.read(there.run_dir) as journal:
        last = round_after_retirement(journal)
        assert [check for check in verify(journal) if not check.holds] == []
    assert last is not None
    told = {"ab"[view.arm]: (view.users, view.asked) for view in last.views}
    assert told == truth


async def test_an_arm_retired_after_a_void_group_keeps_who_was_asked(
    tmp_path: Path,
) -> None:
    """Where no round is finished yet, the record of the arms comes from elsewhere."""
    experiment = config(transport=TransportSettings(attempts=1))
    async with world(tmp_path, experiment) as there:
        there.react = once_asked(
            lambda: there.port.gone.update(f"node-{i}" for i in range(10))
        )
        with pytest.raises(UnavailableError):
            await there.run()
    assert invoke("retire", there.run_dir, "a", "--reason", "it harms people")[0] == 0
    with Journal.read(there.run_dir) as journal:
        last = round_after_retirement(journal)
    assert last is not None
    truth = counted(there.run_dir)
    told = {"ab"[view.arm]: (view.users, view.asked) for view in last.views}
    assert told == truth
    assert truth["a"][0] == 0 < truth["a"][1]


async def test_verify_recomputes_who_was_asked(
    there: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def altered(self: Journal) -> Any:
        return tuple(
            dataclasses.replace(
                record,
                views=tuple(
                    dataclasses.replace(view, asked=view.users) for view in record.views
                ),
            )
            for record in rounds(self)
        )

    rounds = Journal.rounds
    monkeypatch.setattr(Journal, "rounds", altered)
    with Journal.read(there.run_dir) as journal:
        problems = [text for check in verify(journal) for text in check.problems]
    assert "round 1: bounds or eliminations do not follow from the sums" in problems
