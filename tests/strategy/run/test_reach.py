"""How many people can be asked at all is found by the code that draws them."""

from __future__ import annotations

import dataclasses
import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from tests.support.run_fixtures import write
from tests.wallflower.results.test_page import Page
from tests.wallflower.test_run_commands import invoke
from wallflower.protocol.files.sections import NodeSettings
from wallflower.strategy.config import ExperimentConfig, load_config
from wallflower.strategy.run.drawing import Reach, count_reach, find_stranded
from wallflower.strategy.run.node_users import CountedUsers, NodeUsers

# Two arms that no sum tells apart. One of 21 nodes holds 400 of the 600 people.
LARGE = (400,) + (10,) * 20
UNEQUAL = f"""
[experiment]
name = "unequal"
arms = ["a", "b"]
failure-probability = 0.000001
[policy]
first-batch = 10
[nodes]
count = 21
users = {list(LARGE)}
[rewards]
means = [0.5, 0.5]
[test]
noise-seed = 5
"""


@pytest.fixture
def unequal(tmp_path: Path) -> ExperimentConfig:
    return load_config(write(tmp_path, UNEQUAL))


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unequal")
    words = ("--engine", "fast", "--run-dir", folder / "run")
    code, said = invoke("run", write(folder, UNEQUAL), *words)
    assert code == 0, said
    return folder / "run"


def told(run_dir: Path) -> dict[str, object]:
    status: dict[str, object] = json.loads(
        invoke("status", run_dir, "--format", "json")[1]
    )
    return status


@pytest.mark.slow  # whole runs
@pytest.mark.parametrize(
    "sizes",
    [LARGE, (40,) * 15, (10, 90) * 10, tuple(range(1, 41)), (120,) * 4 + (2,) * 30],
    ids=["one large node", "even", "two kinds", "a slope", "four large nodes"],
)
def test_a_run_asks_as_many_people_as_was_foreseen(
    sizes: tuple[int, ...], tmp_path: Path
) -> None:
    text = UNEQUAL.replace("count = 21", f"count = {len(sizes)}").replace(
        f"users = {list(LARGE)}", f"users = {list(sizes)}"
    )
    path = write(tmp_path, text)
    config = load_config(path)
    assert config.nodes.sizes == sizes
    code, said = invoke("run", path, "--engine", "fast", "--run-dir", tmp_path / "run")
    assert code == 0, said
    users = told(tmp_path / "run")["users"]
    assert isinstance(users, dict)
    # Who is drawn is chance, and whole nodes run dry a little sooner or later.
    assert count_reach(config, sizes).asked == pytest.approx(users["invited"], rel=0.06)


def test_people_without_names_are_counted_as_named_ones_are() -> None:
    random = np.random.default_rng(3)
    for most in (1, 2, 3):
        names = tuple(f"u{number}" for number in range(11))
        named, nameless = NodeUsers(names, most), CountedUsers((), most, users=11)
        named.refill(random)
        while (left := nameless.summarize().available) > 0:
            assert named.summarize() == nameless.summarize()
            count = int(random.integers(1, left + 1))
            assert len(named.take(count, random)) == count
            nameless.take(count, random)
        assert named.summarize() == nameless.summarize()
        assert nameless.summarize().invitations == 11 * most


@pytest.mark.slow  # whole runs
def test_people_whom_unequal_nodes_strand_are_found(
    unequal: ExperimentConfig,
) -> None:
    found = find_stranded(unequal, LARGE)
    assert found is not None
    assert found.reach.asked < 300 < found.reach.people == 600
    help_ = dict(found.changes)
    assert help_["nodes of equal size"] > 500
    assert "The largest of 21 nodes holds 400 people." in found.describe()
    assert (
        f"nodes of equal size ({help_['nodes of equal size']:,} people)" in found.advice
    )


@pytest.mark.slow  # simulates many draws of people
def test_each_change_that_is_suggested_does_help(unequal: ExperimentConfig) -> None:
    found = find_stranded(unequal, LARGE)
    assert found is not None
    settings = {
        text.removeprefix("secure-sum."): asked
        for text, asked in found.changes
        if text.startswith("secure-sum.")
    }
    assert settings
    for text, asked in settings.items():
        key, _, value = text.partition(" = ")
        assert key == "corrupt"
        stated = dataclasses.replace(unequal.secure_sum, corrupt=Fraction(value))
        changed = dataclasses.replace(unequal, secure_sum=stated)
        assert count_reach(changed, LARGE).asked == asked > found.reach.asked


def test_nobody_is_stranded_where_nodes_are_alike(unequal: ExperimentConfig) -> None:
    assert find_stranded(unequal, (30,) * 20) is None
    assert find_stranded(unequal, (29, 30, 31) * 7) is None


def test_who_is_beyond_the_horizon_is_not_stranded(unequal: ExperimentConfig) -> None:
    short = dataclasses.replace(unequal.experiment, horizon=100)
    config = dataclasses.replace(unequal, experiment=short)
    reach = count_reach(config, LARGE)
    assert (reach.ended, reach.people, reach.wanted) == ("horizon", 600, 100)
    assert find_stranded(config, LARGE) is None


def test_people_are_stranded_too_where_the_batches_run_out_first(
    unequal: ExperimentConfig,
) -> None:
    """Rounds that had to be smaller use up batches before everybody was asked."""
    sizes = (144, 63, 50, 42, 34, 28, 26, 24, 23, 21, 17, 17, 15, 14, *(11,) * 6, 6)
    many = dataclasses.replace(unequal.experiment, horizon=sum(sizes))
    config = dataclasses.replace(unequal, experiment=many)
    found = find_stranded(config, sizes)
    assert found is not None
    assert found.reach.ended == "horizon"
    assert dict(found.changes)["nodes of equal size"] > 1.05 * found.reach.asked


def test_a_run_that_found_its_winner_has_stranded_nobody(tmp_path: Path) -> None:
    text = UNEQUAL.replace("[0.5, 0.5]", "[0.0, 1.0]").replace("0.000001", "0.05")
    words = ("--engine", "fast", "--run-dir", tmp_path / "run")
    code, said = invoke("run", write(tmp_path, text), *words)
    assert (code, '"b" is the best of 2 arms' in said) == (0, True)
    assert told(tmp_path / "run")["stranded"] is None


def test_people_who_may_come_twice_are_counted_once(unequal: ExperimentConfig) -> None:
    twice = dataclasses.replace(unequal.privacy, max_participations=2)
    config = dataclasses.replace(unequal, privacy=twice, nodes=NodeSettings(20, 30))
    reach = count_reach(config, (30,) * 20)
    assert isinstance(reach, Reach)
    assert 500 < reach.asked <= reach.people == 600


@pytest.mark.slow  # whole runs
def test_check_warns_of_people_whom_nobody_can_ask(tmp_path: Path) -> None:
    code, said = invoke("check", write(tmp_path, UNEQUAL))
    assert code == 0
    flat = " ".join(said.split())
    assert "warn users: 2" in flat
    assert "of 600 people can be asked if no arm falls early" in flat
    assert "nodes of equal size" in flat


@pytest.mark.slow  # simulates many draws of people
def test_a_plan_promises_no_more_people_than_can_be_asked(tmp_path: Path) -> None:
    path = write(tmp_path, UNEQUAL)
    plan = json.loads(invoke("plan", path, "--format", "json")[1])
    reach = count_reach(load_config(path), LARGE)
    assert plan["stranded"]["can_be_asked"] == reach.asked
    assert len(plan["batches"]) == reach.rounds
    assert plan["batches"][-1]["users"] <= reach.asked
    said = " ".join(invoke("plan", path)[1].split())
    assert f"{reach.asked:,} of 600 people can be asked if no arm falls early" in said
    even = write(tmp_path, UNEQUAL.replace(f"{list(LARGE)}", "30"))
    assert json.loads(invoke("plan", even, "--format", "json")[1])["stranded"] is None


def test_a_gap_fits_only_where_so_many_people_can_be_asked(tmp_path: Path) -> None:
    path = write(tmp_path, UNEQUAL)
    rows = json.loads(
        invoke("plan", path, "--gap", "0.6", "--gap", "0.9", "--format", "json")[1]
    )["gaps"]
    reach = count_reach(load_config(path), LARGE)
    for row in rows:
        assert row["fits"] == (row["users"] <= reach.asked)


@pytest.mark.slow  # simulates many draws of people
def test_the_result_says_who_could_not_be_asked_and_what_would_help(
    run_dir: Path,
) -> None:
    status = told(run_dir)
    stranded, users = status["stranded"], status["users"]
    assert isinstance(stranded, dict)
    assert isinstance(users, dict)
    assert stranded["can_be_asked"] == users["invited"]
    assert (stranded["people"], stranded["largest_node"]) == (600, 400)
    (equal,) = stranded["what_would_help"]
    said = " ".join(invoke("status", run_dir)[1].split())
    words = (
        f"Only {users['invited']:,} of 600 people could be asked. The largest of 21 "
        "nodes holds 400 people."
    )
    assert words in said
    assert f"nodes of equal size ({equal['can_be_asked']:,} people)" in said
    assert invoke("report", run_dir)[0] == 0
    assert words in Page(run_dir / "report.html").flat


def test_people_whose_budget_is_spent_are_not_stranded(tmp_path: Path) -> None:
    """Equal nodes whose people took part in another experiment before."""
    (tmp_path / "policy.toml").write_text(
        "smallest-cohort = 2\nsmallest-floor-fraction = 0\nlargest-total-epsilon = 1\n"
    )
    kept = '30\npolicy = "policy.toml"\nledger = "people.sqlite"\n'
    text = UNEQUAL.replace(f"{list(LARGE)}\n", kept)
    first = text.replace('arms = ["a", "b"]', 'arms = ["a", "b"]\nhorizon = 300')
    for name, settings in (("first", first), ("second", text)):
        path = write(tmp_path, settings, f"{name}.toml")
        code, said = invoke("check", path)
        assert (code, "can be asked if no arm falls early" in said) == (0, False), said
        code, said = invoke("run", path, "--run-dir", tmp_path / name)
        assert code == 0, said
    status = told(tmp_path / "second")
    users = status["users"]
    assert isinstance(users, dict)
    assert users["invited"] < 400
    assert status["stranded"] is None
