"""The tutorial, word by word, in an empty folder from the wheel alone."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests import test_wheel
from tests.test_documented_commands import ROOT, TUTORIAL

wheel = test_wheel.wheel  # the fixtures
fresh = test_wheel.fresh
_BLOCK = re.compile(r"^```bash tutorial\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def commands() -> list[str]:
    text = (ROOT / TUTORIAL).read_text(encoding="utf-8")
    return [line for block in _BLOCK.findall(text) for line in block.splitlines()]


def test_every_block_of_the_tutorial_is_followed() -> None:
    text = (ROOT / TUTORIAL).read_text(encoding="utf-8")
    assert len(_BLOCK.findall(text)) == text.count("\n```bash")
    assert len(commands()) == 11


@pytest.mark.slow  # a wheel, an environment and eleven processes
def test_the_tutorial_leads_from_nothing_to_a_report(
    fresh: Path, tmp_path: Path
) -> None:
    environment = {**os.environ, "PATH": f"{fresh}:{os.environ['PATH']}"}
    environment.pop("PYTHONPATH", None)
    shown = {}
    for command in commands():
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}"
        shown[command] = done.stdout
    assert "Ready. Nobody was asked" in shown["wallflower check signup/experiment.toml"]
    assert "The record holds." in shown["wallflower verify signup-run"]
    assert (tmp_path / "signup-run" / "report.html").is_file()
    assert "with-photo" in (tmp_path / "rounds.csv").read_text()
