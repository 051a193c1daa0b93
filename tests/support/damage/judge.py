"""Return a damaged run directory to every command and judge what it says."""

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
_VARYING = re.compile(r"last sign of life [\d:]+ UTC|data-taken=.\d+|[\d,]+ bytes")
_FILE_OF = re.compile(r"(?:journal|ledger|events|pause|retire|lock)[\w.-]*")


@dataclass(frozen=True, slots=True)
class Ended:
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
    result: Ended
    problem: str


def say(command: str, run_dir: Path) -> Ended:
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
    return Ended(code, _plain(text, run_dir), _plain(err.getvalue(), run_dir), failure)


def _watch(run_dir: Path) -> Ended:
    """Draw the live page once; a run that cannot be read says so in its banner."""

    async def draw() -> str:
        site = Site([run_dir])
        await site.begin()
        return "\n".join(site.runs[0].parts.values())

    from wallflower.protocol.errors import WallflowerError

    try:
        text = asyncio.run(draw())
    except WallflowerError as error:
        return Ended(error.exit_code, str(error))
    except BaseException:
        return Ended(1, "", traceback=traceback.format_exc())
    # The page itself is there; what it says of the record stands in it.
    refused = "bad" if ("cannot be" in text or "NOT hold" in text) else ""
    return Ended(3 if refused else 0, _plain(text, run_dir))


def _plain(text: str, run_dir: Path) -> str:
    text = text.replace(str(run_dir.parent), "").replace(run_dir.name, "RUN")
    return _VARYING.sub("", text)


class Bench:
    """Two runs, one over and one whose server was killed, and what is said of them."""

    def __init__(self, finished: Path, killed: Path) -> None:
        self.specimens = (finished, killed)
        self._expected: dict[tuple[Path, str], Ended] = {}

    def expected(self, specimen: Path, command: str) -> Ended:
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
                result = say(command, run_dir)
                problem = self._problem(specimen, command, result, run_dir)
                found.append(Verdict(seed, damage, command, result, problem))
        return found

    def _problem(
        self, specimen: Path, command: str, result: Ended, run_dir: Path
    ) -> str:
        if result.traceback or "Traceback" in result.errors or result.code == 1:
            return "traceback"
        if result.code and not (result.text + result.errors).strip():
            return "refused without a word"
        if result.code:
            return _false_advice(result)
        if command == CHANGING and specimen == self.specimens[1]:
            after = say("verify", run_dir)
            return "" if after.code == 0 else f"went on; then verify: {after.text}"
        expected = self.expected(specimen, command)
        if result.text == expected.text or _names_damage(result, expected):
            return ""
        return "silently another result"


def _names_damage(result: Ended, expected: Ended) -> bool:
    """Return whether what is said beyond the expected names a file."""
    known = set(expected.text.splitlines()) | set(expected.errors.splitlines())
    lines = (result.text + "\n" + result.errors).splitlines()
    new = [line for line in lines if line not in known]
    return any(_FILE_OF.search(line) for line in new)


def _false_advice(result: Ended) -> str:
    text = (result.text + result.errors).lower()
    return "advises to resume" if result.code == 3 and "to go on:" in text else ""
