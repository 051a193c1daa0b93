"""The command line as a whole: what it says before any command does its work."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.core
import typer.main

from tests.support.run_fixtures import SMALL, environment, write
from tests.support.run_fixtures import command as process_words
from tests.support.terminal import Screen, lines_of, shown, widest
from tests.wallflower.test_run_commands import invoke
from wallflower.cli import command_line, main
from wallflower.output import console


def commands(group: Any, *before: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    assert isinstance(group, typer.core.TyperGroup)
    for name, command in group.commands.items():
        if isinstance(command, typer.core.TyperGroup):
            yield from commands(command, *before, name)
        else:
            yield (*before, name), command


def refused(monkeypatch: pytest.MonkeyPatch, *words: str | Path) -> tuple[int, str]:
    """Run the whole command line; give its exit code and what it wrote to stderr."""
    error = Screen()
    monkeypatch.setattr(sys, "argv", ["wallflower", *map(str, words)])
    monkeypatch.setattr(sys, "stderr", error)
    with pytest.raises(SystemExit) as ended:
        main()
    assert isinstance(ended.value.code, int)
    return ended.value.code, error.getvalue()


def test_help_says_what_every_argument_is() -> None:
    silent = [
        " ".join(words)
        for words, command in commands(typer.main.get_command(command_line()))
        for line in invoke(*words, "--help")[1].partition("Options:")[0].splitlines()
        if line.endswith("[required]") and len(line.split()) == 2
    ]
    assert silent == []
    assert invoke("status", "--help")[1].count("The run's directory") == 1


@pytest.mark.parametrize(
    "words",
    [
        ("run",),
        ("simulat",),
        ("run", "--nope"),
        ("watch", "r", "--port", "x"),
        ("keys", "nope"),
    ],
)
def test_wrong_words_are_told_in_one_line(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    code, said = refused(monkeypatch, *words)
    assert (code, said.startswith("wallflower: "), said.count("\n")) == (2, True, 1)


@pytest.mark.parametrize("words", [(), ("keys",)])
def test_help_folds_what_commands_do_and_cuts_nothing(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = shown(monkeypatch, 60, *words, "--help").partition("Commands:")[2]
    assert listed
    assert "..." not in listed
    assert widest(listed) <= 60


def test_ctrl_c_while_the_command_line_is_imported_is_said() -> None:
    code = (
        "import sys\n"
        "class Pressed:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'typer': raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Pressed())\n"
        "from wallflower.__main__ import main; main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (130, "wallflower: interrupted\n")


def test_ctrl_c_while_a_command_looks_around_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def pressed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("wallflower.results.page.find_run", pressed)
    assert refused(monkeypatch, "status", tmp_path) == (
        130,
        "wallflower: interrupted\n",
    )


def test_ctrl_c_before_anybody_is_asked_says_so_and_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def pressed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("wallflower.engines.run.preflight", pressed)
    code, said = refused(
        monkeypatch, "run", write(tmp_path), "--run-dir", tmp_path / "r"
    )
    assert (code, "nobody was asked and nothing was written" in said) == (130, True)
    assert not (tmp_path / "r").exists()


def test_an_error_is_folded_between_words_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "60")
    code, said = refused(monkeypatch, "simulate", "--mechanism", "dist-pd")
    assert code == 2
    assert widest(said) <= 60
    assert all(line == line.rstrip() for line in lines_of(said))
    assert "dist-dp, local-dp" in " ".join(said.split())


@pytest.mark.parametrize(
    ("words", "named", "code"),
    [
        (("status", "nope", "--format", "json"), "status", 3),
        (("check", "nope.toml", "--format=json"), "check", 2),
        (("simulate", "--arms", "x", "--format", "json"), "simulate", 2),
        (("run", "--format", "json"), "run", 2),
        (("keys", "list", "--keys", "nope", "--format", "json"), "keys list", 2),
    ],
)
def test_an_error_is_the_one_envelope_where_json_is_asked_for(
    words: tuple[str, ...],
    named: str,
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert refused(monkeypatch, *words)[0] == code
    envelope = json.loads(capsys.readouterr().out)
    assert (envelope["schema_version"], envelope["command"]) == (1, named)
    assert envelope["error"]["exit_code"] == code
    assert envelope["error"]["text"]


def test_results_on_a_full_disk_are_no_traceback() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            process_words("--version"),
            env=environment(),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 4
    assert done.stderr.startswith("wallflower: the output cannot be written (No space")
    assert done.stderr.count("\n") == 1


def test_a_reader_that_has_gone_is_no_error() -> None:
    ours, theirs = os.pipe()
    os.close(ours)
    with os.fdopen(theirs, "w") as gone:
        done = subprocess.run(
            process_words("--version"),
            env=environment(),
            stdout=gone,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_table_for_a_reader_that_has_gone_ends_as_all_output_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    monkeypatch.setattr("sys.stdout", Gone())
    with pytest.raises(BrokenPipeError):  # rich by itself would exit with 1
        console().print("result")


def names(*words: str) -> set[str | None]:
    return {command.name for command in command_line(words).registered_commands}


def test_a_command_that_is_named_is_built_alone() -> None:
    assert names("simulate", "plan") == {"simulate"}


@pytest.mark.parametrize("words", [(), ("--help",), ("simulat",), ("keys", "init")])
def test_without_a_known_name_every_command_is_built(words: tuple[str, ...]) -> None:
    assert {"simulate", "plan", "run", "verify"} <= names(*words)


def without(*streams: str, words: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    """Run a command whose streams `streams`, such as 1, the shell has closed."""
    closing = " ".join(f"{stream}>&-" for stream in streams)
    return subprocess.run(
        ["/bin/sh", "-c", f'"$@" {closing}', "sh", *process_words(*words)],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("streams", "words", "code"),
    [
        (("1",), ("--version",), 0),
        (("2",), ("status", "nope"), 3),
        (("1", "2"), ("status", "nope"), 3),
    ],
)
def test_a_command_does_its_work_where_the_shell_closed_its_output(
    streams: tuple[str, ...], words: tuple[str, ...], code: int
) -> None:
    done = without(*streams, words=words)
    assert (done.returncode, "Traceback" in done.stderr) == (code, False)


def test_files_are_never_opened_in_place_of_a_closed_stream() -> None:
    # What a library writes to number 2 would else land in the run's database.
    code = (
        "import os, sys; from wallflower.__main__ import fill_closed_streams\n"
        "fill_closed_streams()\n"
        "assert sys.stdout and sys.stderr and os.open('/dev/null', 0) > 2\n"
    )
    done = subprocess.run(
        ["/bin/sh", "-c", '"$@" <&- >&- 2>&-', "sh", sys.executable, "-c", code],
        env=environment(),
        check=False,
    )
    assert done.returncode == 0


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_output_is_utf_8_whatever_the_machine_says(
    encoding: str, tmp_path: Path
) -> None:
    done = subprocess.run(
        process_words("plan", write(tmp_path, SMALL.replace('"a"', '"ä"'))),
        env={**environment(), "PYTHONIOENCODING": encoding},
        capture_output=True,
        check=False,
    )
    assert (done.returncode, "ε = 1" in done.stdout.decode()) == (0, True)


def test_a_name_that_is_no_text_is_shown_as_it_is(tmp_path: Path) -> None:
    done = subprocess.run(
        [*process_words("check"), b"\xff.toml"],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (
        2,
        b"wallflower: \xff.toml: no such file\n",
    )


def test_a_working_folder_that_is_gone_is_said(tmp_path: Path) -> None:
    file, gone = write(tmp_path), tmp_path / "gone"
    done = subprocess.run(
        [
            *("/bin/sh", "-c", f'mkdir {gone}; cd {gone}; rmdir {gone}; "$@"', "sh"),
            *process_words("check", file),
        ],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (
        4,
        "wallflower: the folder you are in is gone; change to another\n",
    )


def test_the_help_of_every_option_is_a_whole_sentence() -> None:
    odd = [
        f"{' '.join(words)} {option.opts[0]}"
        for words, command in commands(typer.main.get_command(command_line()))
        for option in command.params
        if isinstance(option, typer.core.TyperOption) and not option.hidden
        for text in (option.help or "",)
        if not text.endswith(".") or "[" in text or "; the home" in text
    ]
    assert odd == []
