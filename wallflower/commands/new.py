"""``wallflower new``: an experiment to start from, which runs as it is."""

from __future__ import annotations

import keyword
import random
import shlex
import shutil
from pathlib import Path
from typing import Annotated

import typer

_FOLDER = Path(__file__).resolve().parent.parent / "starter"
_PEOPLE = 6_000
_SITES = ("north", "south", "east", "west")
_RATES = {"current": 0.20, "shorter": 0.24, "with-photo": 0.36}
_NODES = """\
[nodes]                      # whom `run` hosts for a rehearsal on this machine
count = 40                   # gateways …
users = 150                  # … with so many visitors each
"""
_FUNCTION = """\
[rewards]
source = "callable"
function = "rewards:outcome" # rewards.py, beside this file
test-users = ["nobody"]      # tried before anybody is asked; not a real visitor
means = [0.20, 0.24, 0.36]   # what you expect: only `simulate` looks at it
"""
_TABLE = """\
[rewards]
source = "table"
table = "users.csv"          # a row per visitor, a column per arm
user-column = "user"
node-column = "site"         # where each lives; without it they are dealt out
"""
_SOURCES = {"function": _FUNCTION, "table": _TABLE}


def new(
    name: Annotated[str, typer.Argument(help="The folder to make.", metavar="NAME")],
    rewards: Annotated[
        str,
        typer.Option(
            help="function (rewards.py) or table (users.csv).", metavar="KIND"
        ),
    ] = "function",
    flower: Annotated[
        bool, typer.Option("--flower", help="A Flower app, for `flwr run .`.")
    ] = False,
) -> None:
    """Make a folder with a commented experiment that passes check and run as it is."""
    from wallflower.protocol.errors import ConfigError, UnavailableError
    from wallflower.protocol.files.sections import one_of
    from wallflower.strategy.config import ExperimentSettings

    one_of("rewards", rewards, tuple(_SOURCES))
    folder = Path(name)
    ExperimentSettings(folder.name, ("a", "b"))  # refuses a name that runs cannot have
    files = _app_files(folder.name) if flower else _files(folder.name, rewards)
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        raise ConfigError(
            str(folder),
            f"cannot be made ({error.strerror}); nothing was "
            "written, give another name",
        ) from None
    try:
        for file, text in files.items():
            (folder / file).parent.mkdir(exist_ok=True)
            (folder / file).write_text(text, encoding="utf-8")
    except OSError as error:
        shutil.rmtree(folder, ignore_errors=True)  # ours: it was not there before
        raise UnavailableError(
            f"{folder} cannot be filled ({error.strerror}); nothing was written"
        ) from None
    check = f"wallflower check {shlex.quote(str(folder / 'experiment.toml'))}"
    read = f"{folder / 'README.md'} says how to run it"
    typer.echo(
        f"{folder}: {', '.join(sorted(files))}\nNext: {read if flower else check}"
    )


def _app_files(name: str) -> dict[str, str]:
    """Return the files of a Flower app, whose names Flower must accept."""
    from wallflower.protocol.errors import InputError

    package = name.replace("-", "_")
    plain = package.isidentifier() and name.replace("-", "").isalnum()
    if not plain or keyword.iskeyword(package):
        allowed = "letters, digits and hyphens, a letter first, for a Flower app"
        raise InputError("name", f'"{name}"', allowed)
    filled = {"@NAME@": name, "@PACKAGE@": package}

    def fill(file: str) -> str:
        text = (_FOLDER / "flower" / file).read_text(encoding="utf-8")
        for mark, value in filled.items():
            text = text.replace(mark, value)
        return text

    return {
        **{file: fill(file) for file in ("pyproject.toml", "README.md")},
        "experiment.toml": fill("experiment.toml"),
        f"{package}/__init__.py": '"""The parts of the app."""\n',
        f"{package}/server_app.py": fill("server_app.py"),
        f"{package}/client_app.py": fill("client_app.py"),
    }


def _files(name: str, rewards: str) -> dict[str, str]:
    def fill_in(file: str) -> str:
        text = (_FOLDER / file).read_text(encoding="utf-8").replace("@NAME@", name)
        source = "rewards.py" if rewards == "function" else "users.csv"
        text = text.replace("@SOURCE@", f"`{source}`")
        text = text.replace("@NODES@\n", f"{_NODES}\n" if rewards == "function" else "")
        return text.replace("@REWARDS@\n", _SOURCES[rewards])

    made = {
        "experiment.toml": fill_in("experiment.toml"),
        "README.md": fill_in("README.md"),
    }
    if rewards == "function":
        return made | {"rewards.py": fill_in("rewards.py")}
    return made | {"users.csv": _people()}


def _people() -> str:
    """Make visitors up, the same ones every time."""
    chance = random.Random(2)  # noqa: S311 (nobody's secret)
    lines = [f"user,site,{','.join(_RATES)}"]
    for number in range(_PEOPLE):
        cells = (str(int(chance.random() < rate)) for rate in _RATES.values())
        site = f"{_SITES[number % 4]}-{number // 4 % 8}"
        lines.append(f"visitor-{number:04},{site},{','.join(cells)}")
    return "\n".join(lines) + "\n"
