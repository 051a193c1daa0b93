"""What an undecided run says of what it would take, and an index policy of itself."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
from fractions import Fraction
from pathlib import Path

import pytest

from tests.support.run_fixtures import SMALL, write
from tests.wallflower.results.test_page import UNDECIDED, Page
from tests.wallflower.test_run_commands import invoke
from wallflower.planning.future import LONGEST, RUNS, typical_users
from wallflower.results import endings as results_endings
from wallflower.results.endings import still_needed
from wallflower.results.page import load_run
from wallflower.strategy.bandit.policy import ArmView
from wallflower.strategy.bandit.spec import PolicySpec
from wallflower.strategy.config import load_config

INDEX = SMALL.replace("[policy]\nfirst-batch = 40", '[policy]\nname = "dp-imed"')


def view(arm: int, estimate: float | None, around: float, out: int | None) -> ArmView:
    middle = 0.5 if estimate is None else estimate
    bounds = middle - around, middle + around
    return ArmView(arm, 400, estimate, *bounds, out is None, out)


BEST, RIVAL, OUT = (view(0, 0.6, 0.15, None), view(1, 0.4, 0.1, None), view(2, 0, 0, 1))


def run_of(folder: Path, text: str, engine: str = "fast") -> Path:
    with contextlib.chdir(folder):
        words = ("--engine", engine, "--run-dir", folder / "run")
        code, said = invoke("run", write(folder, text), *words)
    assert code == 0, said
    return folder / "run"


@pytest.fixture(scope="module")
def undecided(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_of(tmp_path_factory.mktemp("undecided"), UNDECIDED)


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_of(tmp_path_factory.mktemp("index"), INDEX)


def test_the_figure_is_what_plan_says_of_the_arms_that_are_left(tmp_path: Path) -> None:
    file = write(tmp_path)
    needed = still_needed(load_config(file), (BEST, RIVAL, OUT))
    assert needed is not None
    asked = ("--arms", "2", "--gap", "0.2", "--base-rate", "0.4")
    planned = json.loads(invoke("plan", file, *asked, "--format", "json")[1])
    assert (needed.arms, needed.gap, needed.base_rate) == (2, 0.2, 0.4)
    assert needed.people == planned["gaps"][0]["typically"] is not None


def test_the_widest_gap_of_the_intervals_is_the_best_that_can_be_hoped_for(
    tmp_path: Path,
) -> None:
    needed = still_needed(load_config(write(tmp_path)), (BEST, RIVAL, OUT))
    assert needed is not None
    assert needed.widest_gap == 0.45  # 0.75 at most, the other 0.3 at least
    assert needed.people is not None
    assert needed.people_at_widest is not None
    assert 0 < needed.people_at_widest < needed.people


def test_it_is_worded_as_an_estimate_and_of_equal_arms_nothing_is_hoped(
    tmp_path: Path,
) -> None:
    needed = still_needed(load_config(write(tmp_path)), (BEST, RIVAL, OUT))
    assert needed is not None
    said = needed.sentence
    assert said.startswith("An estimate from what was seen: another experiment with")
    assert "the 2 arms left would typically ask about" in said
    assert "is ahead by 0.2, as the sums suggest" in said
    assert said.endswith("Were they equally good, no number would do.")


def test_where_the_estimates_are_equal_no_number_is_given(tmp_path: Path) -> None:
    same = view(1, 0.6, 0.15, None)
    needed = still_needed(load_config(write(tmp_path)), (BEST, same))
    assert needed is not None
    assert needed.people is None
    assert needed.sentence == (
        "The sums show no difference that another experiment with the 2 arms left "
        "could be planned by."
    )


def test_where_simulations_are_undecided_too_it_says_how_far_they_went(
    tmp_path: Path,
) -> None:
    close = view(1, 0.599, 0.15, None)
    needed = still_needed(load_config(write(tmp_path)), (BEST, close))
    assert needed is not None
    assert (needed.people, needed.looked_up_to) == (None, 72_000)
    assert needed.sentence.startswith("An estimate from what was seen: if the best")
    assert "not even 72,000 people would surely let another" in needed.sentence


@pytest.mark.parametrize(
    "views",
    [(BEST, OUT), (BEST, view(1, None, 0.5, None))],
    ids=["one is left", "one was never heard"],
)
def test_nothing_is_estimated_where_nothing_can_be(
    views: tuple[ArmView, ...], tmp_path: Path
) -> None:
    assert still_needed(load_config(write(tmp_path)), views) is None


def test_status_json_and_report_of_an_undecided_run_say_the_same(
    undecided: Path,
) -> None:
    result = load_run(undecided).result
    needed = result.still_needed()
    assert needed is not None
    told = json.loads(invoke("status", undecided, "--format", "json")[1])
    assert told["still_needed"] == needed.as_json()
    assert needed.sentence in told["sentence"]
    assert needed.sentence in " ".join(invoke("status", undecided)[1].split())
    invoke("report", undecided)
    assert needed.sentence in Page(undecided / "report.html").flat


def test_no_leader_is_named_where_nothing_is_decided(undecided: Path) -> None:
    said = load_run(undecided).result.sentence()
    assert said.startswith("Undecided: 2 of 3 arms are left, and the users of")
    assert "leads" not in said


def test_a_decided_run_needs_nobody_else(tmp_path: Path) -> None:
    run_dir = run_of(tmp_path, SMALL)
    told = json.loads(invoke("status", run_dir, "--format", "json")[1])
    assert told["winner"] == "b"
    assert told["still_needed"] is None


def test_an_index_policy_says_what_it_is_for_in_result_and_report(index: Path) -> None:
    purpose = "dp-imed is an index policy: while it learns it gives more people the"
    said = " ".join(invoke("status", index)[1].split())
    assert '"b" was given to most people:' in said
    assert purpose in said
    invoke("report", index)
    flat = Page(index / "report.html").flat
    assert "“b” was given to most people:" in flat
    assert purpose in flat
    assert "Undecided" not in said + flat
    assert (
        json.loads(invoke("status", index, "--format", "json")[1])["still_needed"]
        is None
    )


def test_an_experiment_of_many_small_rounds_is_simulated_in_few(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[PolicySpec] = []

    def simulated(
        policy: PolicySpec, base: Fraction, gap: Fraction, runs: int
    ) -> int | None:
        asked.append(dataclasses.replace(policy, horizon=LONGEST * policy.horizon))
        assert runs == RUNS
        return typical_users(policy, base, gap, runs)

    monkeypatch.setattr(results_endings, "typical_users", simulated)
    many = SMALL.replace("first-batch = 40", "first-batch = 40\nratio = 1.000001")
    needed = still_needed(load_config(write(tmp_path, many)), (BEST, RIVAL, OUT))
    assert needed is not None
    assert [policy.ratio for policy in asked] == [Fraction(11, 10)] * 2
    assert max(policy.most_batches for policy in asked) < 150
    assert needed.people is not None
    assert "Each of its rounds is a tenth larger" in needed.sentence
    usual = still_needed(load_config(write(tmp_path)), (BEST, RIVAL, OUT))
    assert usual is not None
    assert "a tenth larger" not in usual.sentence


def test_an_experiment_of_many_arms_is_simulated_a_few_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arms = 350
    names = ", ".join(f'"a{number}"' for number in range(arms))
    means = ", ".join(["0.5"] * arms)
    many = re.sub(r"arms = \[[^]]*\]", f"arms = [{names}]", SMALL)
    many = re.sub(r"means = \[[^]]*\]", f"means = [{means}]", many)
    counts: list[int] = []

    def simulated(*asked: object) -> None:
        counts.append(int(str(asked[-1])))

    monkeypatch.setattr(results_endings, "typical_users", simulated)
    views = [
        view(number, 0.5 + (number == 0) / 10, 0.2, None) for number in range(arms)
    ]
    needed = still_needed(load_config(write(tmp_path, many)), views)
    assert needed is not None
    assert counts == [11, 11]
    assert needed.simulated == 11
