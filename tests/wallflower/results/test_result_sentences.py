"""What a run says of its guarantee, wherever it says it."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import sqlite3
from fractions import Fraction
from pathlib import Path

import pytest

from tests.support.run_fixtures import SMALL, write
from tests.wallflower.test_run_commands import invoke
from wallflower.engines.registry import ENGINES
from wallflower.protocol.privacy.sentences import REHEARSAL
from wallflower.results.page import content, fragment
from wallflower.results.result import RunResult, read_result
from wallflower.results.statements import annex_of
from wallflower.strategy.store.journal import Journal

BOTH_HALVES = (
    "This holds as long as {nodes} work with the operator and, in every cohort, at "
    "least 146 of 200 people answer honestly."
)

# Means so far apart that the first batch decides.
ONE_BATCH = SMALL.replace("[0.1, 0.9, 0.2]", "[0, 1, 0]").replace(
    "first-batch = 40", "first-batch = 200"
)


def ran(folder: Path, text: str = SMALL, engine: str = "fast") -> Path:
    run_dir = folder / "run"
    file = write(folder, text)
    assert invoke("run", file, "--engine", engine, "--run-dir", run_dir)[0] == 0
    return run_dir


def result_of(run_dir: Path) -> RunResult:
    with Journal.read(run_dir) as journal:
        return read_result(journal)


@pytest.mark.parametrize(
    ("engine", "nodes", "dealt"),
    [
        (
            "local",
            "at most 2 of 12 nodes, among which the run's key was dealt,",
            [{"nodes": 12, "colluding": 2, "drawn": False}],
        ),
        ("fast", "at most 10 % of the run's nodes", []),  # deals no key
    ],
)
def test_result_status_and_json_say_both_halves_of_the_condition(
    tmp_path: Path, engine: str, nodes: str, dealt: list[dict[str, object]]
) -> None:
    run_dir = ran(tmp_path, ONE_BATCH, engine)
    said = " ".join(invoke("status", run_dir)[1].split())
    stated = json.loads(invoke("status", run_dir, "--format", "json")[1])
    first = stated["guarantee"]["conditions"][0]
    assert BOTH_HALVES.format(nodes=nodes) in stated["sentence"]
    assert (
        "of the run's nodes collude, at least 73 % of each cohort's people answer"
        in said
    )
    assert stated["guarantee"]["keys"] == dealt
    assert (first["people"], first["honest"]) == (200, 146)


@pytest.mark.parametrize("engine", ENGINES)
def test_only_a_deployment_hides_outcomes_from_its_operator(
    tmp_path: Path, engine: str
) -> None:
    result = dataclasses.replace(result_of(ran(tmp_path)), engine=engine)
    real = engine in ("deployment", "serve")
    assert (REHEARSAL not in result.promise()) == real
    assert result.as_json()["rehearsal"] is not real


@pytest.mark.parametrize("mechanism", ["dist-rdp", "dist-cdp"])
def test_a_run_words_epsilon_delta_as_what_it_is(
    tmp_path: Path, mechanism: str
) -> None:
    text = f'{SMALL}[privacy]\nmechanism = "{mechanism}"\nepsilon = 0.5\n'
    said = result_of(ran(tmp_path, text)).promise()
    assert "except" not in said
    assert "one in a million added (differential privacy with ε = 2.25" in said
    assert "at δ = 10⁻⁶ in all" in said


MIXED = """
[secure-sum]
backend = "shuffle"
shuffle = "mixed"
[policy]"""


def test_result_record_and_page_of_a_mixed_run_state_its_delta(tmp_path: Path) -> None:
    run_dir = ran(tmp_path, ONE_BATCH.replace("\n[policy]", MIXED))
    result = result_of(run_dir)
    assert result.spent.mixing_delta == Fraction(1, 2**40)
    assert "differential privacy with ε = 1, δ = 2⁻⁴⁰" in result.sentence()
    assert "the shuffler does not work with the operator" in result.sentence()
    with Journal.read(run_dir) as journal:
        facts = dict(annex_of(journal, result).facts)
    assert facts["In all"] == "ε = 1, δ = 2⁻⁴⁰"
    assert facts["Guarantee"] == "pure ε-differential privacy, with δ = 2⁻⁴⁰"
    assert invoke("verify", run_dir)[0] == 0


def test_a_run_with_the_papers_radius_promises_what_can_be_proved_of_it(
    tmp_path: Path,
) -> None:
    run_dir = ran(tmp_path, ONE_BATCH.replace("[policy]", '[policy]\nradius = "paper"'))
    result = result_of(run_dir)
    assert result.winner == "b"
    assert "a better one was dropped is at most 0.0625." in result.sentence()
    with Journal.read(run_dir) as journal:
        page = fragment("report.html", content(journal))
        facts = dict(annex_of(journal, result).facts)
    assert "a better one was dropped is at most 6.25\N{NO-BREAK SPACE}%" in page
    assert facts["Chance of a wrong decision"].startswith("at most 6.25 %")


@pytest.mark.parametrize("fact", ["In all", "As (ε, δ)"])
def test_the_annex_adds_the_own_delta_to_that_of_a_conversion(
    fact: str, tmp_path: Path
) -> None:
    proved = '[privacy]\nmechanism = "dist-rdp"\n[secure-sum]\ninputs = "proved"\n'
    run_dir = ran(tmp_path, ONE_BATCH + proved)
    result = result_of(run_dir)
    assert result.spent.truncation_delta > 0
    with Journal.read(run_dir) as journal:
        facts = dict(annex_of(journal, result).facts)
    assert "at δ = 1.00001e-06" in facts[fact]


def test_a_record_that_forgets_the_delta_of_mixing_is_not_believed(
    tmp_path: Path,
) -> None:
    run_dir = ran(tmp_path, ONE_BATCH.replace("\n[policy]", MIXED))
    with contextlib.closing(sqlite3.connect(run_dir / "journal.sqlite")) as database:
        database.execute(
            "UPDATE round SET spent = json_remove(spent, '$.mixing-delta')"
        )
        database.commit()
    code, said = invoke("verify", run_dir)
    assert code != 0
    assert "states another guarantee than was spent" in " ".join(said.split())


def test_a_run_without_noise_promises_nothing_rehearsal_or_not(tmp_path: Path) -> None:
    text = f'{SMALL}[privacy]\nmechanism = "non-private"\n'
    said = result_of(ran(tmp_path, text)).promise()
    assert said.startswith("Nothing is promised")


def test_a_simulation_asks_nobody_and_says_so() -> None:
    _, said = invoke("simulate", "--arms", "2", "--horizon", "1000")
    assert "Nobody is asked in a simulation." in said
