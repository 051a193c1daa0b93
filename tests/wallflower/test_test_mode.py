"""A run whose noise comes from a seed says so wherever it speaks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.run_fixtures import SMALL, write
from tests.wallflower.test_run_commands import invoke
from wallflower.results.live import RunView
from wallflower.strategy.store import events
from wallflower.strategy.store.event_log import decode
from wallflower.strategy.store.journal import Journal

SEEDED = SMALL + "[test]\nnoise-seed = 7\n"
GRPC = SEEDED + '[transport]\nkind = "grpc"\n'
WAYS = {
    "local": (SEEDED, "local"),
    "local over gRPC": (GRPC, "local"),
    "fast": (SEEDED, "fast"),
}


@pytest.fixture(scope="module", params=WAYS)
def seeded(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, str]:
    """A finished run in test mode, and what its command said."""
    text, engine = WAYS[request.param]
    folder = tmp_path_factory.mktemp("seeded")
    code, said = invoke(
        "run", write(folder, text), "--run-dir", folder / "run", "--engine", engine
    )
    assert code == 0
    return folder / "run", said


def assert_is_a_test(said: str) -> None:
    assert "TEST MODE, no privacy" in said
    assert "ε" not in said
    assert "semi-honest" not in said


def test_its_result_says_so(seeded: tuple[Path, str]) -> None:
    assert_is_a_test(seeded[1])


@pytest.mark.parametrize("command", ["status", "verify"])
def test_commands_say_so_by_the_journal(command: str, seeded: tuple[Path, str]) -> None:
    code, said = invoke(command, seeded[0])
    assert code == 0
    assert_is_a_test(said)


def test_programs_are_told(seeded: tuple[Path, str]) -> None:
    status = json.loads(invoke("status", seeded[0], "--format", "json")[1])
    assert status["test_mode"] is True
    assert status["trust"] == "test mode"
    assert {status["guarantee"][key] for key in ("epsilon", "total-epsilon")} == {None}
    assert status["guarantee"]["approximate-epsilon"] is None
    verified = json.loads(invoke("verify", seeded[0], "--format", "json")[1])
    assert verified["test_mode"] is True


def test_the_journal_promises_nothing(seeded: tuple[Path, str]) -> None:
    with Journal.read(seeded[0]) as journal:
        last = journal.last_round()
    assert last is not None
    assert last.spent.sentence.startswith("TEST MODE, no privacy")
    assert last.spent.epsilon is None


def test_the_events_say_so(seeded: tuple[Path, str]) -> None:
    first = (seeded[0] / "events.jsonl").read_text().splitlines()[0]
    started = decode(first)
    assert isinstance(started, events.RunStarted)
    assert started.test_mode


async def test_the_live_view_says_so_with_every_round(
    capsys: pytest.CaptureFixture[str],
) -> None:
    started = events.RunStarted("r", ("a",), 2, 20, 20, 0, "", True)
    with RunView(("a",)) as view:
        await view.listen(started)
        await view.listen(events.RoundFinished(1, (), 10, 10, 0, None, 1.0))
    assert "TEST MODE, no privacy" in capsys.readouterr().err.splitlines()[-1]
    assert "TEST MODE, no privacy" in str(view._render().renderables[0])


def test_a_run_without_a_seed_is_no_test(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    invoke("run", write(tmp_path), "--run-dir", run_dir, "--engine", "fast")
    assert "TEST MODE" not in invoke("status", run_dir)[1]
    status = json.loads(invoke("status", run_dir, "--format", "json")[1])
    assert status["test_mode"] is False
