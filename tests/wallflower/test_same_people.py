"""Three experiments in a row with the same people, by the commands of the docs."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from wallflower.cli import main

EXPERIMENT = """
[experiment]
name = "{name}"
arms = ["a", "b"]

[privacy]
epsilon = 0.5

[policy]
first-batch = 60

[nodes]
count = 12
users = 60
policy = "policy.toml"
ledger = "people.sqlite"

[rewards]
means = [0.5, 0.5]

[test]
noise-seed = 3
"""
POLICY = """
smallest-cohort = 2
smallest-floor-fraction = 0
largest-total-epsilon = 1
"""


def run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *words: str
) -> tuple[int, str]:
    """Run a command; return its exit code and all that it says, unfolded."""
    monkeypatch.setattr(sys, "argv", ["wallflower", *words])
    monkeypatch.setenv("COLUMNS", "400")
    with pytest.raises(SystemExit) as ended:
        main()
    said = capsys.readouterr()
    return int(ended.value.code or 0), " ".join((said.out + said.err).split())


def users_of(text: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(text)["users"]
    return found


def test_three_experiments_with_the_same_people(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("policy.toml").write_text(POLICY)
    for name in ("first", "second", "third"):
        Path(f"{name}.toml").write_text(EXPERIMENT.format(name=name))

    def command(*words: str) -> tuple[int, str]:
        return run(capsys, monkeypatch, *words)

    # Before anybody took part the ledger is not there, and nobody is left out.
    code, said = command("plan", "first.toml", "--gap=0.5")
    assert code == 0
    assert "can still be asked" not in said
    for name in ("first", "second"):
        code, said = command("run", f"{name}.toml", "--run-dir", name)
        assert code == 0, said
        assert "0 void" in said
        code, said = command("status", name, "--format=json")
        users = users_of(said)
        assert (users["people"], users["lost"], users["left_out"]) == (720, 0, 0)
        assert users["can_be_asked"] == 720 - users["invited"]
        code, said = command("status", name)
        left = users["can_be_asked"]
        assert f"{left} of 720 people can still be asked under these terms." in said
        assert command("verify", name)[0] == 0

    sentence = "of 720 people can still be asked under these terms; "
    reason = "are left out by their nodes: their budget does not allow it."
    code, said = command("plan", "third.toml", "--gap=0.5")
    assert code == 0
    assert sentence in said
    assert reason in said
    code, said = command("plan", "third.toml", "--gap=0.5", "--format=json")
    people = json.loads(said)["people"]
    assert people["able"] + people["left_out"] == people["people"] == 720
    assert people["left_out"] > 360
    code, said = command("check", "third.toml")
    assert code != 0
    assert f"{people['able']} {sentence}{people['left_out']} {reason}" in said
    assert "begin a run with a smaller privacy.epsilon" in said
    code, said = command("run", "third.toml", "--run-dir", "third")
    assert code != 0
    assert sentence in said
    assert not Path("third").exists()
