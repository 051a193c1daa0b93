"""Give a damaged run directory to every command and judge what it says."""

from __future__ import annotations

import asyncio
import contextlib
import io
import random
import re
import shutil
import sys
import tempfile
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from tests.support.damage.kinds import damage_copy
from wallflower.cli import main
from wallflower.watching.site import Site

COMMANDS = ("verify", "status", "report", "export", "watch", "pause", "retire")
CHANGING = "resume"  # last: it goes on with the run
_VARYING = re.compile(r"last sign of life [\d:]+ UTC|data-told=.\d+|[\d,]+ bytes")
_FILE_OF = re.compile(r"(?:journal|ledger|events|pause|retire|lock)[\w.-]*")


@dataclass(frozen=True, slots=True)
class Said:
    """How a command ended: its exit code and everything it wrote."""

    code: int
    text: str
    errors: str = ""
    traceback: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one damage did to one command."""

    seed: int
    damage: str
    command: str
    said: Said
    problem: str


def say(command: str, run_dir: Path) -> Said:
    """Run one command on a directory, in this process, as its program would."""
    if command == "watch":
        return _watch(run_dir)
    page = run_dir.parent / "page.html"
    words = {
        "report": ("report", run_dir, "--output", page),
        "retire": ("retire", run_dir, "a", "--reason", "harms"),
    }.get(command, (command, run_dir))
    out, err = io.StringIO(), io.StringIO()
    code, failure = 0, ""
    with (
        mock.patch.object(sys, "argv", ["wallflower", *map(str, words)]),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 1
        except BaseException:
            code, failure = 1, traceback.format_exc()
    text = out.getvalue()
    if command == "report" and page.exists():
        text += page.read_text(encoding="utf-8")
        page.unlink()
    return Said(code, _plain(text, run_dir), _plain(err.getvalue(), run_dir), failure)


def _watch(run_dir: Path) -> Said:
    """Draw the live page once; a run that cannot be read says so in its banner."""

    async def draw() -> str:
        site = Site([run_dir])
        await site.begin()
        return "\n".join(site.runs[0].parts.values())

    from wallflower.protocol.errors import WallflowerError

    try:
        text = asyncio.run(draw())
    except WallflowerError as error:
        return Said(error.exit_code, str(error))
    except BaseException:
        return Said(1, "", traceback=traceback.format_exc())
    # The page itself is there; what it says of the record stands in it.
    refused = "bad" if ("cannot be" in text or "NOT hold" in text) else ""
    return Said(3 if refused else 0, _plain(text, run_dir))


def _plain(text: str, run_dir: Path) -> str:
    text = text.replace(str(run_dir.parent), "").replace(run_dir.name, "RUN")
    return _VARYING.sub("", text)


class Bench:
    """Two runs, one over and one whose server was killed, and what is said of them."""

    def __init__(self, finished: Path, killed: Path) -> None:
        self.specimens = (finished, killed)
        self._expected: dict[tuple[Path, str], Said] = {}

    def expected(self, specimen: Path, command: str) -> Said:
        """Return what a command says of the undamaged directory."""
        if (specimen, command) not in self._expected:
            with tempfile.TemporaryDirectory() as folder:
                copy = Path(shutil.copytree(specimen, Path(folder) / "the-damaged-run"))
                self._expected[specimen, command] = say(command, copy)
        return self._expected[specimen, command]

    def judge(
        self, seed: int, commands: Sequence[str] = (*COMMANDS, CHANGING)
    ) -> list[Verdict]:
        """Damage a copy by a seed and give a copy of it to each command."""
        specimen = self.specimens[random.Random(seed).randrange(2)]
        found = []
        for command in commands:
            with tempfile.TemporaryDirectory() as folder:
                run_dir = Path(folder) / "the-damaged-run"
                damage = damage_copy(specimen, run_dir, seed)
                said = say(command, run_dir)
                problem = self._problem(specimen, command, said, run_dir)
                found.append(Verdict(seed, damage, command, said, problem))
        return found

    def _problem(self, specimen: Path, command: str, said: Said, run_dir: Path) -> str:
        if said.traceback or "Traceback" in said.errors or said.code == 1:
            return "traceback"
        if said.code and not (said.text + said.errors).strip():
            return "refused without a word"
        if said.code:
            return _false_advice(said)
        if command == CHANGING and specimen == self.specimens[1]:
            after = say("verify", run_dir)
            return "" if after.code == 0 else f"went on; then verify: {after.text}"
        expected = self.expected(specimen, command)
        if said.text == expected.text or _names_damage(said, expected):
            return ""
        return "silently another result"


def _names_damage(said: Said, expected: Said) -> bool:
    """Tell whether what is said beyond the expected names a file."""
    known = set(expected.text.splitlines()) | set(expected.errors.splitlines())
    lines = (said.text + "\n" + said.errors).splitlines()
    new = [line for line in lines if line not in known]
    return any(_FILE_OF.search(line) for line in new)


def _false_advice(said: Said) -> str:
    text = (said.text + said.errors).lower()
    return "advises to resume" if said.code == 3 and "to go on:" in text else ""
