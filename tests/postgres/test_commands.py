"""Every command that works on a run does so where the run is in PostgreSQL."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.postgres_server import PostgresServer
from tests.support.run_fixtures import SMALL, write
from tests.wallflower.test_run_commands import invoke
from wallflower.strategy.config import load_config
from wallflower.strategy.store.journal import Journal
from wallflower.strategy.store.run_store import requests_of


@pytest.fixture(scope="module")
def finished(
    tmp_path_factory: pytest.TempPathFactory, postgres: PostgresServer
) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    text = f'{SMALL}[store]\nurl = "{postgres.url}"\n'
    code, said = invoke("run", write(folder, text), "--run-dir", folder / "run")
    assert (code, '"b" is the best' in said) == (0, True), said
    return folder / "run"


def test_the_run_directory_has_no_table_of_the_run(finished: Path) -> None:
    assert (finished / "store.toml").exists()
    assert not list(finished.glob("journal.sqlite*"))
    assert not (finished / "spool.sqlite").exists()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("status",), '"b" is the best'),
        (("verify",), "The record holds."),
        (("report",), "report.html"),
        (("resume",), '"b" is the best'),
    ],
)
def test_a_command_reads_the_run(
    words: tuple[str, ...], expected: str, finished: Path
) -> None:
    code, said = invoke(*words, finished)
    assert (code, expected in said) == (0, True), said


def test_the_run_is_exported(finished: Path, tmp_path: Path) -> None:
    path = tmp_path / "run.csv"
    code, said = invoke("export", finished, "--output", path)
    assert code == 0, said
    assert path.read_text().startswith("round,arm,users,asked")


def test_an_arm_is_retired_by_hand_and_a_pause_needs_a_server(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    folder = tmp_path
    text = f'{SMALL}[store]\nurl = "{postgres.url}"\n'
    config = load_config(write(folder, text))
    with Journal.create(folder / "run", folder.name, config, "local"):
        assert invoke("pause", folder / "run")[0] == 0
        assert requests_of(folder / "run").is_pause_requested()
        code, said = invoke("retire", folder / "run", "a", "--reason", "harm")
        assert (code, "when the round under way is over" in said) == (0, True), said
        assert requests_of(folder / "run").read_retirements() == {0: "harm"}
    code, said = invoke("pause", folder / "run")
    assert (code, "nothing to pause" in said) == (4, True), said
