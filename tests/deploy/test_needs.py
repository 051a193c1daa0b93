from __future__ import annotations

import re
from pathlib import Path

import pytest

from deploy.harness import needs

MAKEFILE = (Path(__file__).parents[2] / "Makefile").read_text(encoding="utf-8")


def test_a_missing_program_is_named_with_its_package() -> None:
    programs = {"nginx": (lambda: None, "nginx"), "ip": (lambda: "/sbin/ip", "x")}
    assert needs.missing(programs, user=0) == [
        "nginx is not installed: `apt-get install nginx` (or your system's way)"
    ]


def test_without_root_it_is_said() -> None:
    (line,) = needs.missing({}, user=1000)
    assert "need root" in line


def test_what_is_missing_is_exit_4_and_one_line_each(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(needs, "PROGRAMS", {"nginx": (lambda: None, "nginx")})
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert needs.main() == 4
    assert capsys.readouterr().err.startswith("cannot build hosts: nginx is not")


@pytest.mark.parametrize("target", ["test-hosts", "test-faults", "guide"])
def test_targets_that_build_hosts_ask_first(target: str) -> None:
    recipe = re.search(rf"^{target}: .*\n\t(.*)\n", MAKEFILE, re.MULTILINE)
    assert recipe is not None
    assert recipe[1].startswith("$(BIN)/python -m deploy.harness.needs")


def test_faults_of_the_clock_are_not_tried_without_a_way_to_fake_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = re.search(r"^test-faults: .*\n\t.*needs (.*)\n", MAKEFILE, re.MULTILINE)
    assert recipe is not None
    monkeypatch.setattr(needs, "PROGRAMS", {})
    monkeypatch.setattr("shutil.which", lambda _: None)
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert needs.main(recipe[1].split()) == 4
    assert "faketime is not installed" in capsys.readouterr().err
