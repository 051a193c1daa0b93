from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.run_fixtures import SMALL, write


def wallflower(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "wallflower", *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.fixture(scope="module")
def envelope() -> dict[str, Any]:
    done = wallflower("plan", "--arms", "3", "--horizon", "1e4", "--format", "json")
    assert done.returncode == 0
    assert done.stderr == ""
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def test_json_is_one_envelope_with_a_schema_version(envelope: dict[str, Any]) -> None:
    assert envelope["schema_version"] == 1
    assert envelope["command"] == "plan"


def test_every_batch_has_its_integers(envelope: dict[str, Any]) -> None:
    for batch in envelope["batches"]:
        size, precision = batch["cohort_size"], batch["precision"]
        assert batch["modulus"] == size * precision + 2 * batch["noise_bound"] + 1
        assert batch["bits_per_user"] == math.ceil(math.log2(batch["modulus"]))


def test_json_carries_the_guarantee(envelope: dict[str, Any]) -> None:
    guarantee = envelope["guarantee"]
    assert (guarantee["kind"], guarantee["epsilon"]) == ("pure", 1.0)
    assert guarantee["trust"] == "distributed"
    assert guarantee["sentence"].startswith("Whatever a person's outcome was")


def test_the_page_is_plain_when_it_is_not_read_on_a_terminal() -> None:
    done = wallflower("plan", "--horizon", "5000", "--mechanism", "dist-rdp")
    assert done.returncode == 0
    assert "\x1b" not in done.stdout
    for heading in (
        "What a person is promised",
        "users per arm",
        "When people do not answer",
        "Users needed",
    ):
        assert heading in done.stdout


def test_large_numbers_are_never_cut() -> None:
    done = wallflower(
        *("plan", "--mechanism", "central-dp", "--horizon", "1e12"),
        *("--set", "policy.ratio=10"),
    )
    assert done.returncode == 0
    assert "…" not in done.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--mechanism", "distdp"], 'did you mean "dist-dp"'),
        (["--format", "jsn"], 'did you mean "json"'),
        (["--epsilon", "0"], "epsilon is 0"),
        (["--epsilon", "nan"], "epsilon is nan"),
        (["--arms", "1"], "arms is 1"),
        (["--horizon", "12"], "horizon is 12"),
        (["--horizn", "12"], "Did you mean '--horizon'"),
        (["--gap", "2"], "gap is 2"),
        (["--mechanism", "dist-cdp", "--set", "privacy.scale=1"], "scale is 1"),
        (
            ["--set", "privacy.epsilonn=1"],
            '--set privacy: unknown key "epsilonn" (did you mean "epsilon"?)',
        ),
        (["--set", "privcy.epsilon=1"], 'unknown key "privcy" (did you mean "privacy"'),
        (
            ["--set", "privacy.epsilon=much"],
            '--set privacy.epsilon: expected a number, got the text "much"',
        ),
        (["--set", "privacy.epsilon=0"], "--set privacy: epsilon is 0; allowed:"),
        (["--set", "epsilon=1"], 'set is "epsilon=1"; allowed: SECTION.KEY=VALUE'),
        (["--set", "privacy.epsilon"], 'set is "privacy.epsilon"; allowed:'),
    ],
)
def test_bad_input_is_one_line_and_exit_code_two(
    arguments: list[str], said: str
) -> None:
    done = wallflower("plan", *arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("wallflower: ")
    assert said in done.stderr


def test_an_unknown_command_is_one_line_with_one_suggestion() -> None:
    done = wallflower("pla")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert done.stderr.count("Did you mean") == 1


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys; sys.argv = ['wallflower', '--help']\n"
        "import wallflower.cli\n"
        "try:\n    wallflower.cli.main()\nexcept SystemExit:\n    pass\n"
        "heavy = {'numpy', 'flwr', 'ray', 'dp_accounting', 'matplotlib', 'scipy',"
        " 'flint', 'grpc', 'pyarrow', 'google.protobuf'}\n"
        "sys.exit(', '.join(heavy & set(sys.modules)) or 0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "plan" in done.stdout


def test_help_shows_defaults_without_escapes() -> None:
    done = wallflower("plan", "--help")
    assert done.returncode == 0
    assert "[default: (10)]" in done.stdout
    assert "\\[" not in done.stdout


def test_a_file_gives_what_no_flag_has_given(tmp_path: Path) -> None:
    file = write(tmp_path, SMALL)  # three arms, 720 users
    words = ("plan", str(file), "--format", "json")
    assert json.loads(wallflower(*words).stdout)["settings"]["arms"] == 3
    five = json.loads(wallflower(*words, "--arms", "5").stdout)["settings"]
    assert (five["arms"], five["horizon"]) == (5, 720)


def settings_of(*words: str) -> dict[str, Any]:
    done = wallflower("plan", *words, "--format", "json")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)["settings"]
    return found


def test_a_key_that_is_set_overrides_the_file(tmp_path: Path) -> None:
    file = str(write(tmp_path, SMALL))
    changes = ("--set", "privacy.epsilon=1/2", "--set", "secure-sum.dropout=0.3")
    found = settings_of(file, *changes)
    assert (found["epsilon"], found["floor"], found["arms"]) == ("1/2", "3/5", 3)


def test_without_a_file_a_key_that_is_set_overrides_what_is_usual() -> None:
    found = settings_of("--set", "policy.ratio=2", "--set", "secure-sum.corrupt=0")
    assert (found["ratio"], found["floor"], found["arms"]) == ("2", "9/10", 10)
    assert found["names"] == []


def test_an_option_overrides_a_key_that_is_set() -> None:
    found = settings_of("--set", "privacy.epsilon=2", "--epsilon", "3")
    assert found["epsilon"] == "3"


def test_a_file_that_is_wrong_is_named_and_not_the_option(tmp_path: Path) -> None:
    file = write(tmp_path, SMALL + "[privacy]\nepsilon = 0\n")
    done = wallflower("plan", str(file), "--set", "privacy.epsilon=1")
    assert done.returncode == 2
    line = file.read_text(encoding="utf-8").splitlines().index("epsilon = 0") + 1
    assert done.stderr.startswith(f"wallflower: {file}:{line}: privacy: epsilon is 0")
