"""The page tells what the journal and `verify` tell, and nothing else."""

from __future__ import annotations

import contextlib
import json
import re
import sqlite3
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from tests.support.failing_nodes import nodes_fail
from tests.support.run_fixtures import SMALL, write
from tests.wallflower.test_run_commands import invoke
from wallflower.protocol.accounting.exact import effective_epsilon_of
from wallflower.protocol.cohort import cohort_mechanism
from wallflower.protocol.numbers import round_up
from wallflower.protocol.rewards.reward_range import RewardRange
from wallflower.protocol.wire.cohort_pb2 import CohortSpec
from wallflower.results.history import ArmRow
from wallflower.results.page import arms_of, content
from wallflower.results.statements import describe_elimination
from wallflower.results.view import count_people
from wallflower.strategy.bandit.policy import EliminationReason
from wallflower.strategy.store.journal import Journal

FAILING = """
[experiment]
name = "failing"
arms = ["a", "b", "c"]
[policy]
first-batch = 120
[secure-sum]
dropout = 0.2
[nodes]
count = 12
users = 60
[rewards]
means = [0.0, 1.0, 0.0]
"""
UNDECIDED = SMALL.replace("[0.1, 0.9, 0.2]", "[0.5, 0.51, 0.1]").replace(
    'name = "small"', 'name = "undecided"\nhorizon = 500'
)
TEST = SMALL + "[test]\nnoise-seed = 3\n"
LARGEST_BYTES = 300_000


class Page(HTMLParser):
    """Texts of tables by caption, and all text; what a reader copies."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.text = path.read_text(encoding="utf-8")
        self.tables: dict[str, list[list[str]]] = {}
        self.words: list[str] = []
        self._rows: list[list[str]] = []
        self._caption: str | None = None
        self._hidden = 0
        self.feed(self.text)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag == "table":
            self._rows, self._caption = [], ""
        elif tag == "tr":
            self._rows.append([])
        elif tag in ("td", "th") and self._rows:
            self._rows[-1].append("")
        self._hidden += tag in ("svg", "style")

    def handle_endtag(self, tag: str) -> None:
        if tag == "table" and self._caption is not None:
            self.tables[self._caption.strip()] = self._rows
            self._rows = []
        self._hidden -= tag in ("svg", "style")

    def handle_data(self, data: str) -> None:
        if self._hidden:
            return
        self.words.append(data)
        if self._rows and self._rows[-1]:
            self._rows[-1][-1] += data
        elif self._caption is not None and not self._rows:
            self._caption += data

    def table(self, start: str) -> list[list[str]]:
        (found,) = (t for name, t in self.tables.items() if name.startswith(start))
        return [[" ".join(cell.split()) for cell in row] for row in found[1:]]

    def facts(self, start: str) -> list[list[str]]:
        (found,) = (t for name, t in self.tables.items() if name.startswith(start))
        return found

    @property
    def flat(self) -> str:
        return " ".join(" ".join(self.words).split())


def made(folder: Path, text: str) -> Path:
    with contextlib.chdir(folder):
        code, said = invoke("run", write(folder, text), "--run-dir", folder / "run")
    assert code == 0, said
    code, said = invoke("report", folder / "run")
    assert code == 0, said
    return folder / "run"


@pytest.fixture(scope="module")
def failing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with nodes_fail(("node-3",)):
        return made(tmp_path_factory.mktemp("failing"), FAILING)


@pytest.fixture(scope="module")
def undecided(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("undecided"), UNDECIDED)


def page_of(run_dir: Path) -> Page:
    return Page(run_dir / "report.html")


def rows(run_dir: Path, query: str) -> list[Any]:
    with sqlite3.connect(run_dir / "journal.sqlite") as database:
        return database.execute(query).fetchall()


def verified(run_dir: Path) -> dict[str, object]:
    code, said = invoke("verify", run_dir, "--format", "json")
    assert code == 0
    told: dict[str, object] = json.loads(said)
    return told


def number(text: str) -> int:
    return int(text.replace(",", ""))


def test_the_promise_is_word_by_word_the_one_that_verify_prints(failing: Path) -> None:
    promise = str(verified(failing)["promise"])
    assert promise in page_of(failing).flat


def test_the_head_is_the_one_that_verify_prints(failing: Path) -> None:
    head = str(verified(failing)["head"])
    assert f"--head {head}" in page_of(failing).flat


def test_every_check_of_verify_stands_on_the_page(failing: Path) -> None:
    checks = verified(failing)["checks"]
    assert isinstance(checks, list)
    shown = [row[1].strip() for row in page_of(failing).facts("What held")]
    assert shown == [f"{check['name']} ({check['looked_at']})" for check in checks]


def test_the_arms_are_those_of_the_last_round(failing: Path) -> None:
    ((text,),) = rows(failing, "SELECT views FROM round ORDER BY number DESC LIMIT 1")
    names = ("a", "b", "c")
    expected = {
        names[view["arm"]]: [
            f"{view['estimate']:.3f}",
            f"{view['lower']:.3f} – {view['upper']:.3f}",
            count_people(view["users"], view["asked"]),
        ]
        for view in json.loads(str(text))
    }
    shown = {row[0]: row[2:5] for row in page_of(failing).table("Estimates after")}
    assert shown == expected


def test_every_round_of_every_arm_is_in_the_table_until_it_fell(failing: Path) -> None:
    expected = set()
    out: set[int] = set()
    for at, text in rows(failing, "SELECT number, views FROM round ORDER BY number"):
        for view in json.loads(str(text)):
            if view["arm"] not in out:
                mean = f"{view['estimate']:.3f}"
                bounds = (f"{view['lower']:.3f}", f"{view['upper']:.3f}")
                expected.add(("abc"[view["arm"]], str(at), mean, *bounds))
            if not view["active"]:
                out.add(view["arm"])
    table = page_of(failing).table("Every arm after")
    assert {(r[0], r[1], r[3], r[4], r[5]) for r in table} == expected


def test_people_by_arm_are_those_of_the_invitations_and_the_sums(failing: Path) -> None:
    invited: Counter[str] = Counter()
    answered: Counter[str] = Counter()
    losses: Counter[str] = Counter()
    for arm, users in rows(
        failing, "SELECT arm, users FROM cohort JOIN invitation USING (cohort_id)"
    ):
        invited["abc"[int(str(arm))]] += len(json.loads(str(users)))
    for arm, result, lost in rows(failing, "SELECT arm, result, losses FROM cohort"):
        answered["abc"[int(str(arm))]] += json.loads(str(result))["survivors"]
        losses.update(json.loads(str(lost)))
    page = page_of(failing)
    shown = {
        row[0]: (number(row[1]), number(row[2])) for row in page.table("People by")
    }
    assert shown == {arm: (invited[arm], answered[arm]) for arm in "abc"}
    by_reason = {row[1]: number(row[2]) for row in page.table("Everybody lost")}
    assert by_reason == dict(losses)
    assert losses["node-failed"] == invited.total() - answered.total() > 0


def test_the_groups_are_the_terms_that_every_cohort_was_asked_on(failing: Path) -> None:
    promise = str(verified(failing)["promise"])
    for row in page_of(failing).table("Cohorts by size"):
        assert f"{row[1]} of {row[0]}" in promise  # h of n
        assert f"{row[4]} of {row[3]} nodes" in promise  # colluding of nodes


def test_the_annex_says_what_becomes_of_the_promise_if_more_collude(
    failing: Path,
) -> None:
    with Journal.read(failing) as journal:
        specs = [CohortSpec.FromString(one.spec) for one in journal.cohorts()]
    cohorts = [cohort_mechanism(spec) for spec in specs]
    alone = max(effective_epsilon_of(one, 1) for one in cohorts)
    assert alone > 5
    facts = dict(page_of(failing).facts("The technical terms"))
    said = " ".join(facts["If more collude"].split())
    assert f"up to ε = {round_up(alone)} for somebody alone on a node" in said


def test_the_time_of_a_round_is_that_between_its_entries(failing: Path) -> None:
    times = dict(rows(failing, "SELECT subject, at FROM entry WHERE kind = 'round'"))
    first = dict(
        rows(
            failing,
            "SELECT CAST(round AS TEXT), min(at) FROM entry JOIN cohort ON "
            "subject = cohort_id WHERE kind = 'invited' GROUP BY round",
        )
    )
    for row in page_of(failing).table("From the first invitation"):
        seconds = float(str(times[row[0]])) - float(str(first[row[0]]))
        assert row[3] == f"{seconds:.1f} s"


def test_a_winner_is_named_with_the_chance_that_it_is_wrong(failing: Path) -> None:
    flat = page_of(failing).flat
    assert "“b” is the best of 3 arms." in flat
    assert "The chance that a better one was dropped is at most 5 %." in flat


def test_an_undecided_run_says_what_was_learnt_and_names_no_leader(
    undecided: Path,
) -> None:
    flat = page_of(undecided).flat
    assert "Undecided: 2 of 3 arms are left." in flat
    assert "“a” and “b” cannot be told apart" in flat
    assert "Out is “c”: the chance that a better one was dropped" in flat
    assert "leads" not in flat
    assert "winner" not in flat


def test_a_run_whose_sums_all_failed_says_so_first_and_why(tmp_path: Path) -> None:
    text = FAILING.replace("[nodes]", "[transport]\nattempts = 1\n[nodes]")
    everybody = [f"node-{number}" for number in range(12)]
    with contextlib.chdir(tmp_path), nodes_fail(everybody):
        assert invoke("run", write(tmp_path, text), "--run-dir", "run")[0] == 4
    invoke("report", tmp_path / "run")
    flat = page_of(tmp_path / "run").flat
    assert "No round is finished yet. 3 of 3 cohorts gave no sum." in flat
    assert "Of 360 people asked 360 are in none: the node failed (360)." in flat
    assert "under way" not in flat.partition("What people were promised")[0]


def test_test_mode_is_a_banner_and_promises_nothing(tmp_path: Path) -> None:
    page = page_of(made(tmp_path, TEST))
    assert (
        '<aside class="banner" aria-label="Test mode">TEST MODE, no privacy'
        in page.text
    )
    assert "can shift the odds" not in page.flat
    terms = {row[0] for row in page.facts("The technical terms")}
    assert "Guarantee" in terms
    assert not terms & {"Composition", "Withstands"}  # of a promise there is none


def test_a_changed_record_gets_no_verdict_and_no_promise(tmp_path: Path) -> None:
    run_dir = made(tmp_path, SMALL)
    with sqlite3.connect(run_dir / "journal.sqlite") as database:
        database.execute("UPDATE cohort SET size = size + 1")
    code, said = invoke("report", run_dir)
    page = page_of(run_dir)
    assert code == 3
    assert "This record does not hold." in said
    assert "The record does NOT hold: do not rely on this page." in page.flat
    assert "is the best of" not in page.flat
    assert "can shift the odds" not in page.flat
    assert "best" not in [row[-1] for row in page.table("Estimates after round")]
    assert "all intervals of all rounds hold together" not in page.flat
    assert "The technical terms of the promise" not in page.tables


def test_what_a_server_writes_meanwhile_breaks_no_look_at_the_record(
    tmp_path: Path,
) -> None:
    run_dir = made(tmp_path, SMALL)
    told = run_dir / "events.jsonl"
    with Journal.read(run_dir) as journal:
        told.write_text(told.read_text() + json.dumps({"head": "f" * 64}) + "\n")
        with sqlite3.connect(run_dir / "journal.sqlite") as server:
            server.execute("UPDATE cohort SET size = size + 1")
        assert content(journal)["holds"]
    with Journal.read(run_dir) as journal:
        assert not content(journal)["holds"]


def test_a_name_from_the_file_cannot_become_markup(tmp_path: Path) -> None:
    name = "<script>alert(1)</script>"
    text = SMALL.replace('"b"', json.dumps(name))
    page = page_of(made(tmp_path, text))
    assert "<script" not in page.text
    assert name in page.flat


def test_the_page_needs_nothing_from_elsewhere_and_is_small(failing: Path) -> None:
    text = (failing / "report.html").read_text(encoding="utf-8")
    assert re.findall(r"(?:src|href|url)\s*[=(]", text) == []
    assert "https://" not in text
    assert "<script" not in text
    assert len(text.encode()) <= LARGEST_BYTES


def test_a_run_of_which_no_round_is_finished_has_a_page_too(tmp_path: Path) -> None:
    from wallflower.strategy.config import load_config

    run_dir = tmp_path / "run"
    Journal.create(run_dir, "fresh", load_config(write(tmp_path)), "local").close()
    code, _ = invoke("report", run_dir)
    assert code == 0
    page = page_of(run_dir)
    assert "No round is finished yet." in page.flat
    assert "nothing to compare" in page.flat
    assert "(1 entry)" in page.flat
    assert "Every decision followed from the sums" not in page.flat
    assert set(page.tables) == {
        "People by arm",
        "What held when this page was written",
        "The run",
    }


def test_a_number_stands_with_its_noun(failing: Path) -> None:
    page = page_of(failing)
    assert "(from 0 to 1)" in page.flat.replace(", the mark", "")
    assert "more often than agreed (once)" in page.flat
    assert "dealt among 12 nodes" in page.flat
    assert "\N{NO-BREAK SPACE}%" in page.text.partition("Withstands")[2][:200]


def test_nobody_lost_is_nothing_that_differs(undecided: Path) -> None:
    with Journal.read(undecided) as journal:
        assert content(journal)["rates"].p_value == 1.0


def test_the_rounds_are_drawn_on_the_scale_of_what_they_led_to() -> None:
    row = ArmRow(1, "a", 9, 9, 0.1, 0.0, 1.0, True, False, None, False, "")
    end = replace(row, round=9, estimate=0.03, lower=0.025, upper=0.035)
    every = [replace(one, arm=arm) for one in (row, end) for arm in ("a", "b")]
    (first, _) = arms_of(every, ("a", "b"), None, RewardRange())
    assert (first["drawn"], first["cut"]) == ("from 0 to 0.08", True)


def test_a_small_chance_is_written_for_people() -> None:
    reason = EliminationReason(1, 0.05677, chance=3.7e-06)
    assert describe_elimination(reason, ["a", "b"], RewardRange()) == (
        "0.05677 behind “b”; the chance of such sums, were it as good as any, is at "
        "most 3.7·10⁻⁶"
    )
