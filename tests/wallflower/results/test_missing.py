"""Every result says whom its verdict holds for: everybody asked, or who answered."""

from __future__ import annotations

import contextlib
import functools
import json
import random
from pathlib import Path
from typing import Any

import pytest

from tests.support.run_fixtures import SMALL, write
from tests.support.vanishing import (
    Gone,
    VanishingPort,
    is_fifth_node_in_first_arm,
)
from tests.wallflower.results.test_page import Page
from tests.wallflower.test_run_commands import invoke
from wallflower.engines import fast
from wallflower.protocol.messages.port import NodeHandler, NodeId
from wallflower.protocol.wire.node_pb2 import CohortStage

NODES = 3_600
# Equal arms; a node has one person for each.
EQUAL = f"""
[experiment]
name = "equal"
arms = ["a", "b"]
failure-probability = 0.25
[policy]
first-batch = 3200
[privacy]
epsilon = 4
[secure-sum]
dropout = 0.2
nodes-per-cohort = 0
[nodes]
count = {NODES}
[rewards]
source = "table"
table = "people.csv"
[test]
noise-seed = 21
"""


# The first arm misses a fifth of its nodes, and sums of this back-end cannot wait.
MISSING = (
    SMALL.replace('name = "small"', 'name = "missing"')
    .replace("first-batch = 40", "first-batch = 240")
    .replace("count = 12", "count = 120")
    .replace("[0.1, 0.9, 0.2]", "[0.4, 0.65, 0.1]")
    .replace(
        "[policy]",
        """[secure-sum]
backend = "secagg-plus"
dropout = 0.3
nodes-per-cohort = 0
[policy]""",
    )
    + "[test]\nnoise-seed = 21\n"
)


def ran(folder: Path, text: str, gone: Gone, patch: pytest.MonkeyPatch) -> Path:
    """Run on engine fast with nodes that vanish by a rule, and write the page."""

    def port(handlers: dict[NodeId, NodeHandler]) -> VanishingPort:
        return VanishingPort(handlers, gone)

    patch.setattr(fast, "MemoryTransport", port)
    with contextlib.chdir(folder):
        code, said = invoke(
            "run", write(folder, text), "--engine", "fast", "--run-dir", folder / "run"
        )
    assert code == 0, said
    assert invoke("report", folder / "run")[0] == 0
    return folder / "run"


def nobody(_node: NodeId, _stage: CohortStage) -> bool:
    return False


@functools.cache
def status(run_dir: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(invoke("status", run_dir, "--format", "json")[1])
    return found


@functools.cache
def everywhere(run_dir: Path) -> list[str]:
    """What terminal, JSON, page and `verify` say, white space and quotes apart."""
    said = [
        invoke("status", run_dir)[1],
        status(run_dir)["sentence"],
        Page(run_dir / "report.html").flat,
        invoke("verify", run_dir)[1],
    ]
    fast = str.maketrans("“”", '""')
    return [" ".join(text.split()).translate(fast) for text in said]


@pytest.fixture(scope="module")
def equal_arms(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both means are ½; a loses a tenth of its ones, b a tenth of its zeros."""
    folder = tmp_path_factory.mktemp("equal")
    source = random.Random(3)
    people = {f"p{number}": source.randrange(2) for number in range(2 * NODES)}
    unlucky = {name for name in people if source.random() < 0.1}
    rows = [f"{name},{value},{value}" for name, value in people.items()]
    (folder / "people.csv").write_text("\n".join(["user,a,b", *rows]) + "\n")

    def gone(_node: NodeId, stage: CohortStage) -> bool:
        lost = 1 - stage.spec.arm
        return any(user in unlucky and people[user] == lost for user in stage.users)

    with pytest.MonkeyPatch.context() as patch:
        return ran(folder, EQUAL, gone, patch)


def test_equal_arms_that_lose_unlike_people_differ_among_those_who_answered(
    equal_arms: Path,
) -> None:
    found = status(equal_arms)
    assert found["winner"] == "b"
    missing = found["missing"]
    assert missing["holds_for"] == "those-who-answered"
    assert missing["doubtful_arms"] == ["a"]
    assert missing["in_no_sum"] == found["users"]["lost"] > 100
    assert missing["asked"] == found["users"]["invited"]
    for said in everywhere(equal_arms):
        assert "is the best of 2 arms among those who answered" in said
        assert "It holds among those who answered" in said
        assert '"a" would still be in the race' in said


def test_the_headline_itself_is_qualified(equal_arms: Path) -> None:
    text = (equal_arms / "report.html").read_text()
    assert "<h1>“b” is the best of 2 arms among those who answered.</h1>" in text
    assert '<span class="pill open">decided</span>' in text
    assert "<title>equal: “b” is the best of 2 arms among those who answered." in text


def test_intervals_say_whose_mean_they_hold(equal_arms: Path) -> None:
    found = status(equal_arms)
    whose = "those who answered of the people asked, drawn evenly over the nodes"
    assert found["interval_of"] == whose
    assert f"that of {whose}, not of the whole population" in everywhere(equal_arms)[0]
    assert f"that of {whose}, not of the whole population" in everywhere(equal_arms)[2]
    for arm in found["arms"]:
        assert arm["lower_all_asked"] < arm["lower"] < arm["upper"]
        assert arm["upper"] < arm["upper_all_asked"]
        # Both arms have the mean ½ over everybody asked.
        assert arm["lower_all_asked"] < 0.5 < arm["upper_all_asked"]


def test_a_run_that_misses_nobody_holds_for_everybody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_dir = ran(tmp_path, SMALL, nobody, monkeypatch)
    found = status(run_dir)
    asked = found["users"]["invited"]
    assert found["missing"] == {
        "asked": asked,
        "in_no_sum": 0,
        "in_void_cohorts": 0,
        "holds_for": "everybody-asked",
        "doubtful_arms": [],
        "rounds_with_unlike_nodes": 0,
        "answer_rates_differ": False,
        "answer_rates_p_value": 1.0,
        "answer_rates_level": 0.001,
        "sentence": f"Nobody is missing. It holds for all {asked} people asked.",
    }
    assert found["interval_of"] == "the people asked, drawn evenly over the nodes"
    for said in everywhere(run_dir):
        assert f"Nobody is missing. It holds for all {asked} people asked." in said
        assert "among those who answered" not in said
    for arm in found["arms"]:
        assert (arm["lower_all_asked"], arm["upper_all_asked"]) == (
            arm["lower"],
            arm["upper"],
        )


def test_a_verdict_that_the_missing_cannot_turn_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = SMALL.replace("[policy]", "[secure-sum]\ndropout = 0.2\n[policy]")
    run_dir = ran(tmp_path, text, lambda node, _: node == "node-3", monkeypatch)
    found = status(run_dir)
    lost = found["users"]["lost"]
    assert lost > 0
    assert found["missing"]["holds_for"] == "everybody-asked"
    for said in everywhere(run_dir):
        assert f"It holds whatever the {lost} missing people's outcomes were." in said
    assert "among those who answered." not in (run_dir / "report.html").read_text()


def test_people_of_void_cohorts_were_replaced_which_is_an_assumption(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(_node: NodeId, stage: CohortStage) -> bool:
        first = "-t1-" in stage.spec.cohort_id
        return first and stage.spec.arm == 1 and stage.spec.batch == 1

    text = SMALL.replace("[0.1, 0.9, 0.2]", "[0.4, 0.8, 0.4]")
    run_dir = ran(tmp_path, text, gone, monkeypatch)
    found = status(run_dir)
    assert found["cohorts"]["void"] == 1
    assert found["missing"]["in_void_cohorts"] == found["users"]["lost"] > 0
    assert found["missing"]["holds_for"] == "everybody-asked-but-void-cohorts"
    for said in everywhere(run_dir):
        assert "Nobody is missing from a sum. 1 cohort of" in said
        assert "no cohort failed because of its people's outcomes" in said


def test_arms_that_lose_people_at_other_rates_qualify_the_headline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_dir = ran(tmp_path, MISSING, is_fifth_node_in_first_arm, monkeypatch)
    missing = status(run_dir)["missing"]
    assert missing["holds_for"] == "those-who-answered"
    assert missing["answer_rates_differ"] is True
    assert missing["answer_rates_p_value"] < 0.001
    assert missing["rounds_with_unlike_nodes"] > 0
    for said in everywhere(run_dir):
        assert "among those who answered (answer rates differ by arm)" in said
        assert 'Answer rates differ by arm: "a" lost' in said


def test_a_policy_that_rules_nothing_out_has_no_verdict_to_qualify(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = SMALL.replace("[policy]", '[policy]\nname = "dp-imed"')
    text = text.replace('name = "small"', 'name = "small"\nhorizon = 300')
    found = status(ran(tmp_path, text, nobody, monkeypatch))
    assert found["missing"]["holds_for"] is None
    assert found["missing"]["sentence"] == ""
    assert found["interval_of"] == (
        "the people asked, drawn from all nodes in proportion to who is left there"
    )
