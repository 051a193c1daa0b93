from __future__ import annotations

import contextlib
import datetime
import os
import shlex
import socket
import sqlite3
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.support.run_fixtures import (
    SMALL,
    write,
)
from wallflower.cli import command_line
from wallflower.protocol.errors import WallflowerError
from wallflower.protocol.identity.certificates import (
    make_authority,
    make_server_certificate,
)
from wallflower.strategy.config import load_config
from wallflower.strategy.store.database import RunLock
from wallflower.strategy.store.journal import Journal


def invoke(*words: str | Path) -> tuple[int, str]:
    """Run a command in this process; give exit code and everything it said."""
    result = CliRunner().invoke(command_line(), [str(word) for word in words])
    error = result.exception
    if isinstance(error, WallflowerError):
        return error.exit_code, str(error)
    if error is not None and not isinstance(error, SystemExit):
        raise error
    return result.exit_code, result.output


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    with contextlib.chdir(folder):
        code, said = invoke("run", write(folder))
    assert (code, '"b" is the best' in said) == (0, True)
    (run_dir,) = (folder / "runs").iterdir()
    assert run_dir.name.startswith("small-")
    return run_dir


def test_a_run_ends_with_a_table_the_verdict_and_a_short_promise(
    finished: Path,
) -> None:
    code, said = invoke("status", finished)
    flat = " ".join(said.split())
    assert code == 0
    assert '"b" is the best of 3 arms' in flat
    assert "factor of 2.72 (ε = 1 in all)." in flat
    assert "the server is semi-honest" in flat
    assert f"More: wallflower report {finished}" in said
    assert "best" in flat
    assert "━" in flat


def test_verify_accepts_a_good_record(finished: Path) -> None:
    code, said = invoke("verify", finished)
    assert code == 0
    assert "The record holds." in said


def test_the_paragraphs_of_verify_are_folded_in_a_pipe(finished: Path) -> None:
    said = invoke("verify", finished)[1].partition(", head ")[2]
    assert max(map(len, said.splitlines())) <= 96


def test_status_of_a_run_under_way_does_not_say_how_to_resume_it(
    tmp_path: Path,
) -> None:
    run_dir = tmp_path / "run"
    Journal.create(run_dir, "r", load_config(write(tmp_path)), "fast").close()
    lock = RunLock(run_dir)
    try:
        code, said = invoke("status", run_dir)
    finally:
        lock.release()
    assert (code, f"Look on: wallflower watch {run_dir}" in said) == (0, True)
    assert "resume" not in said
    assert f"To go on: wallflower resume {run_dir}" in invoke("status", run_dir)[1]


def test_a_command_to_be_copied_works_with_any_folder(tmp_path: Path) -> None:
    run_dir = tmp_path / "it's my run"
    code, said = invoke(
        "run", write(tmp_path), "--engine", "fast", "--run-dir", run_dir
    )
    (more,) = (line for line in said.splitlines() if line.startswith("More: "))
    assert (code, shlex.split(more)[-1]) == (0, str(run_dir))


def test_a_run_in_the_folder_one_is_in_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, folder = write(tmp_path), tmp_path / "spring"
    folder.mkdir()
    monkeypatch.chdir(folder)
    code, said = invoke("run", file, "--engine", "fast", "--run-dir", ".")
    assert (code, "small (spring-" in said) == (0, True)


def test_terms_that_the_policy_file_refuses_end_with_code_4(tmp_path: Path) -> None:
    (tmp_path / "strict.toml").write_text("largest-epsilon = 0.1\n")
    stated = SMALL.replace("users = 60", 'users = 60\npolicy = "strict.toml"')
    code, said = invoke("run", write(tmp_path, stated), "--run-dir", tmp_path / "run")
    assert (code, "epsilon-too-large" in said) == (4, True)
    assert not (tmp_path / "run").exists()


def test_resuming_a_finished_run_changes_nothing(finished: Path) -> None:
    before = (finished / "journal.sqlite").read_bytes()
    assert invoke("resume", finished)[0] == 0
    assert (finished / "journal.sqlite").read_bytes() == before


TAMPERING = {
    "a sum": (
        'UPDATE cohort SET result = replace(result, \'"released": "\', '
        '\'"released": "1\') WHERE arm = 1',
        "the record cannot be replayed",
    ),
    "a decoded total": (
        'UPDATE cohort SET result = replace(result, \'"total": "\', '
        '\'"total": "1\') WHERE arm = 1',
        "decoded wrongly",
    ),
    "a decision": (
        "UPDATE round SET views = replace(views, '\"active\": false', "
        "'\"active\": true')",
        "do not follow from the sums",
    ),
    "an end": ("UPDATE round SET finished = 'horizon'", "the sums give winner"),
    "a user twice": (
        "UPDATE invitation SET users = (SELECT users FROM invitation i JOIN cohort c "
        "USING (cohort_id) WHERE c.arm = 0 AND i.node_id = 'node-1') WHERE node_id = "
        "'node-1'",
        "was invited",
    ),
    "survivors": (
        "UPDATE cohort SET result = replace(result, '\"survivors\": 40', "
        "'\"survivors\": 30') WHERE arm = 1",
        "30 users in the sum",
    ),
    "a guarantee": (
        'UPDATE round SET spent = replace(spent, \'"total-epsilon": "1"\', '
        '\'"total-epsilon": "1/2"\')',
        "another guarantee than was spent",
    ),
    "a cohort's terms": ("UPDATE cohort SET spec = x'' WHERE arm = 0", "not the exp"),
    "proofs that were not asked for": (
        "UPDATE cohort SET spec = CAST(spec || x'800101' AS BLOB) WHERE arm = 0",
        "proved_inputs is not the experiment's",
    ),
    "another range": (
        "UPDATE cohort SET spec = CAST(spec || x'8a01030a0135' AS BLOB) WHERE arm = 0",
        "reward_range is not the experiment's",
    ),
    "another window": (
        "UPDATE cohort SET spec = CAST(spec || x'900107' AS BLOB) WHERE arm = 0",
        "window_ms is not the experiment's",
    ),
    "a missing round": (
        "UPDATE round SET number = number + 1000000",  # however many there are
        "round 1 is missing",
    ),
    "a cohort nobody requested": ("UPDATE cohort SET size = 41", "was not requested"),
}


@pytest.mark.parametrize("what", TAMPERING)
def test_verify_refuses_a_record_with_one_thing_changed(
    what: str, finished: Path, tmp_path: Path
) -> None:
    statement, message = TAMPERING[what]
    source = sqlite3.connect(finished / "journal.sqlite")
    copy = sqlite3.connect(tmp_path / "journal.sqlite")
    source.backup(copy)
    source.close()
    assert copy.execute(statement).rowcount > 0
    copy.commit()
    copy.close()
    code, said = invoke("verify", tmp_path)
    assert code == 3
    assert message in said
    assert "does NOT hold" in said


BROKEN = {
    "unknown key": (("epsilon", "epsilom"), 'did you mean "epsilon"'),
    "wrong type": (("first-batch = 40", 'first-batch = "x"'), "a whole number"),
    "epsilon zero": (("epsilon = 1", "epsilon = 0"), "greater than 0"),
    "epsilon negative": (("epsilon = 1", "epsilon = -0.5"), "greater than 0"),
    "unknown mechanism": (('"dist-dp"', '"dist-pd"'), 'did you mean "dist-dp"'),
    "unknown policy": (("first-batch", 'name = "x"\nfirst-batch'), "policy"),
    "not TOML": (("[nodes]", "[nodes"), "is not valid TOML"),
    "missing section": (("[experiment]", "[experimental]"), "experiment"),
    "too few users": (("users = 60", "users = 5"), "at least 120 users"),
    "horizon too small": (
        ('name = "small"', 'name = "small"\nhorizon = 50'),
        "horizon",
    ),
    "missing table": (
        ("[rewards]", '[rewards]\nsource = "table"\ntable = "none.csv"'),
        "none.csv: no such file",
    ),
    "missing function": (
        ("[rewards]", '[rewards]\nsource = "callable"\nfunction = "no_such:f"'),
        "cannot import",
    ),
    "missing policy file": (("[nodes]", '[nodes]\npolicy = "no.toml"'), "no such file"),
    "missing certificate": (
        (
            "[nodes]",
            '[transport]\nkind = "grpc"\ncertificate = "c.pem"\nprivate-key = "k"\n'
            "[nodes]",
        ),
        "c.pem cannot be read",
    ),
    "one arm": (('["a", "b", "c"]', '["a"]'), "arms is 1 name"),
    "a line break": (('"a"', '"a\\n"'), "printable"),
    "text for a number": (("epsilon = 1", 'epsilon = "much"'), 'the text "much"'),
    "a mean too few": (
        (
            "means = [0.1, 0.9, 0.2]",
            'source = "callable"\nfunction = "json:dumps"\nmeans = [0.1, 0.9]',
        ),
        "one mean for each of the 3 arms",
    ),
    "wrong transport": (("[nodes]", '[transport]\nkind = "flower"\n[nodes]'), "local"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_bad_input_is_one_clear_line_exit_2_and_nothing_written(
    what: str, tmp_path: Path
) -> None:
    change, message = BROKEN[what]
    text = SMALL + '[privacy]\nmechanism = "dist-dp"\nepsilon = 1\n'
    experiment = write(tmp_path, text.replace(*change))
    code, said = invoke("run", experiment, "--run-dir", tmp_path / "run")
    assert code == 2, said
    assert message in said
    assert "\n" not in said.strip()
    assert not (tmp_path / "run").exists()


def test_a_horizon_beyond_the_users_does_not_hide_that_they_are_too_few(
    tmp_path: Path,
) -> None:
    text = SMALL.replace("users = 60", "users = 5").replace(
        'name = "small"', 'name = "small"\nhorizon = 9999'
    )
    code, said = invoke("run", write(tmp_path, text), "--run-dir", tmp_path / "run")
    assert (code, "at least 120, which the first round asks" in said) == (2, True)
    assert not (tmp_path / "run").exists()


def test_a_missing_file_or_engine_is_named(tmp_path: Path) -> None:
    code, said = invoke("run", tmp_path / "none.toml")
    assert (code, "none.toml: no such file" in said) == (2, True)
    code, said = invoke("run", write(tmp_path), "--engine", "locall")
    assert (code, 'did you mean "local"' in said) == (2, True)
    code, said = invoke("run", write(tmp_path), "--format", "jsn")
    assert (code, "format" in said) == (2, True)


def test_a_folder_is_not_taken_for_the_file_in_it(tmp_path: Path) -> None:
    file = write(tmp_path)
    for name in ("check", "plan", "simulate", "run"):
        code, said = invoke(name, tmp_path)
        assert (code, f"is a folder; did you mean {file}?" in said) == (2, True), said
        assert "Errno" not in said


@pytest.mark.parametrize("name", ["plan", "simulate"])
def test_a_parameter_of_a_file_is_named_with_the_file(
    name: str, tmp_path: Path
) -> None:
    file = write(tmp_path, SMALL.replace('"small"', '"small"\nhorizon = 5'))
    code, said = invoke(name, file)
    assert (code, said.startswith(f"{file}: horizon is 5; ")) == (2, True), said


def test_the_run_that_is_named_as_the_latest_is_the_latest(tmp_path: Path) -> None:
    with contextlib.chdir(tmp_path):
        for name, age_s in (("z-old", 100), ("a-new", 0)):
            journal = tmp_path / "runs" / name / "journal.sqlite"
            journal.parent.mkdir(parents=True)
            journal.touch()
            then = time.time() - age_s
            os.utime(journal, (then, then))
        assert invoke("status", "none")[1].endswith("the latest in runs: a-new")


def test_a_run_that_is_not_there_is_exit_3(tmp_path: Path) -> None:
    for name in ("status", "verify", "resume"):
        code, said = invoke(name, tmp_path / "none")
        assert (code, "has a journal" in said) == (3, True)


def test_a_directory_that_holds_a_run_is_not_overwritten(
    finished: Path, tmp_path: Path
) -> None:
    code, said = invoke("run", write(tmp_path), "--run-dir", finished)
    assert (code, "already holds a run" in said) == (3, True)


def test_a_port_in_use_is_exit_4_and_nothing_written(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        text = SMALL + f'[transport]\nkind = "grpc"\nport = {port}\n'
        code, said = invoke("run", write(tmp_path, text), "--run-dir", tmp_path / "run")
    assert code == 4
    assert f"127.0.0.1:{port}" in said
    assert not (tmp_path / "run").exists()


def certificate_case(case: str) -> tuple[bytes, bytes, str]:
    """Return a certificate, a key, and what must be said about them."""
    now = datetime.datetime.now(datetime.UTC)
    authority = make_authority("test", now=now)
    good = make_server_certificate(authority, ["127.0.0.1"], now=now)
    other = make_server_certificate(authority, ["hospital.example"], now=now)
    past = now - datetime.timedelta(days=900)
    old = make_server_certificate(authority, ["127.0.0.1"], now=past)
    return {
        "another's key": (good.certificate, other.private_key, "does not fit"),
        "another host": (other.certificate, other.private_key, "does not name"),
        "expired": (old.certificate, old.private_key, "is expired"),
        "no certificate": (b"none", good.private_key, "BEGIN CERTIFICATE"),
        "no key": (good.certificate, b"none", "does not fit"),
    }[case]


@pytest.mark.parametrize(
    "case", ["another's key", "another host", "expired", "no certificate", "no key"]
)
def test_a_wrong_certificate_is_one_clear_line_and_nothing_written(
    case: str, tmp_path: Path
) -> None:
    certificate, key, message = certificate_case(case)
    (tmp_path / "c.pem").write_bytes(certificate)
    (tmp_path / "k.pem").write_bytes(key)
    text = SMALL + (
        '[transport]\nkind = "grpc"\ncertificate = "c.pem"\nprivate-key = "k.pem"\n'
    )
    code, said = invoke("run", write(tmp_path, text), "--run-dir", tmp_path / "run")
    assert code == 2
    assert message in said
    assert "\n" not in said.strip()
    assert not (tmp_path / "run").exists()
