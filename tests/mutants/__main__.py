"""``make mutants``: break the code in known ways; some test must notice each.

Every entry of ``list*.toml`` says what to write in place of what, and which tests are
to fail then: in Python, or in TypeScript those of the browser's client. Code and
tests are found by their text, wherever they lie: moving a module changes nothing here.
Exit code 1 if a mutant lives that is not argued to be equivalent, or one cannot be
applied.
"""

from __future__ import annotations

import argparse
import os
import queue
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
LISTS = tuple(
    Path(__file__).with_name(name) for name in ("list.toml", "list2.toml", "list3.toml")
)
_PRODUCT = ("protocol", "clients", "strategy", "wallflower")  # links are not followed
_WEB = Path("clients", "web")
_MADE = (_WEB / "node_modules", _WEB / "src" / "gen")  # by `make web-env`
_TIMEOUT_S = 900
_BASELINE_TIMEOUT_S = 3600


@dataclass(frozen=True, slots=True)
class Mutant:
    """One entry of the list; `equivalent` argues why no test can notice it."""

    name: str
    find: str
    put: str
    tests: tuple[str, ...]
    equivalent: str = ""


class ListError(Exception):
    """An entry does not fit the code or the tests."""


def read_list(paths: Sequence[Path] = LISTS) -> list[Mutant]:
    """Read all entries; names are unique."""
    rows = [row for path in paths for row in tomllib.loads(path.read_text())["mutant"]]
    mutants = [Mutant(**row | {"tests": tuple(row["tests"])}) for row in rows]
    if len({mutant.name for mutant in mutants}) != len(mutants):
        raise ListError("two mutants share a name")
    return mutants


class Tree:
    """A copy of the code and its tests, read once: whoever changes it puts it back."""

    def __init__(self, root: Path) -> None:
        self.root = root
        python = (path for one in _PRODUCT for path in (root / one).rglob("*.py"))
        typescript = (root / _WEB / "src").glob("*.ts")
        self._code = {path: path.read_text() for path in (*python, *typescript)}
        self._tests = {
            path: path.read_text()
            for folder, names in (("tests", "test_*.py"), (_WEB / "tests", "*.test.ts"))
            for path in (root / folder).rglob(names)
        }

    def place_of(self, mutant: Mutant) -> Path:
        """Return the one file with the text that the mutant replaces."""
        found = [path for path, text in self._code.items() if mutant.find in text]
        if len(found) != 1 or self._code[found[0]].count(mutant.find) != 1:
            places = ", ".join(str(path.relative_to(self.root)) for path in found)
            where = places or "nowhere"
            raise ListError(f"{mutant.name}: its text must stand once; found {where}")
        return found[0]

    def tests_of(self, mutant: Mutant) -> list[str]:
        """Return what pytest is asked: functions, or files by the ends of paths."""
        asked = []
        for name in mutant.tests:
            if name.endswith((".py", ".ts")):
                found = [str(path) for path in self._tests if path.match(name)]
            else:
                found = [
                    f"{path}::{name}"
                    for path, text in self._tests.items()
                    if f"def {name}(" in text
                ]
            if len(found) != 1:
                raise ListError(f"{mutant.name}: {len(found)} tests called {name}")
            asked += found
        return asked


def run_tests(
    tree: Path, tests: list[str], timeout_s: float = _TIMEOUT_S
) -> tuple[int, str]:
    """Run tests in a copy of the tree; give pytest's exit code and last lines."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-x", "--no-header", *tests],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    return done.returncode, "\n".join(done.stdout.splitlines()[-12:])


def run_web_tests(tree: Path, tests: list[str]) -> tuple[int, str]:
    """Bundle and run tests of the browser's client; give node's exit code and end."""
    esbuild = ["node_modules/.bin/esbuild", "--bundle", "--format=esm"]
    built = [f"dist/tests/{Path(test).stem}.js" for test in tests]
    output = ""
    for command in (
        [*esbuild, "--platform=node", "--outdir=dist/tests", *tests],
        ["node", "--test", *built],
    ):
        done = subprocess.run(
            command,
            cwd=tree / _WEB,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
        output += done.stdout
        if done.returncode and command[0] != "node":
            return 2, output  # it cannot be built: that is no test's merit
    return done.returncode, output


class Worker(threading.Thread):
    """Tries mutants, one after the other, in a copy of its own."""

    def __init__(
        self, tree: Tree, waiting: queue.SimpleQueue[Mutant], ends: dict[str, str]
    ) -> None:
        super().__init__()
        self._tree, self._waiting, self._ends = tree, waiting, ends
        self._moment = int(time.time())

    def run(self) -> None:
        """Take mutants until none is left."""
        while True:
            try:
                mutant = self._waiting.get_nowait()
            except queue.Empty:
                return
            started = time.monotonic()
            try:
                end = self._try(mutant)
            except (ListError, subprocess.TimeoutExpired) as error:
                end = f"broken: {error}"
            self._ends[mutant.name] = end
            took = time.monotonic() - started
            print(f"{mutant.name:44} {end} ({took:.0f} s)", flush=True)

    def _try(self, mutant: Mutant) -> str:
        place, tests = self._tree.place_of(mutant), self._tree.tests_of(mutant)
        text = place.read_text()
        self._write(place, text.replace(mutant.find, mutant.put))
        try:
            run = run_web_tests if place.suffix == ".ts" else run_tests
            code, output = run(self._tree.root, tests)
        finally:
            self._write(place, text)
        if code == 1:
            return f"killed by {_first_failure(output)}"
        if code == 0:
            return "equivalent" if mutant.equivalent else "SURVIVED"
        return f"broken: pytest exit {code}\n{output}"

    def _write(self, path: Path, text: str) -> None:
        # Compiled code is told apart by size and second of the last change.
        self._moment += 1
        path.write_text(text)
        os.utime(path, (self._moment, self._moment))


def _first_failure(output: str) -> str:
    lines = [line for line in output.splitlines() if line.startswith("FAILED ")]
    if lines:
        return lines[0].partition("::")[2].partition("[")[0].split()[0]
    found = re.search(r"^ *(?:not ok \d+ - |✖ )([^(\n]+)", output, re.MULTILINE)
    return found[1].strip() if found else "?"


def copy_tree(to: Path) -> None:
    """Copy what git knows, or would know, of the tree."""
    names = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    for name in names:
        if (ROOT / name).is_symlink() or (ROOT / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, to / name, follow_symlinks=False)
    for made in _MADE:
        if (ROOT / made).exists():
            (to / made).symlink_to(ROOT / made)
    reported = "import wallflower.protocol.noise as room; print(room.__path__[0])"
    used = subprocess.run(
        [sys.executable, "-c", reported],
        cwd=to,
        env={**os.environ, "PYTHONPATH": str(to)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    if not used.startswith(str(to)):
        raise ListError(f"tests would not see the copy in {to} but {used}")


def main() -> int:
    """Try all mutants, or those named; give 1 if one lives or is broken."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="only these")
    parser.add_argument("--list", default="", help="only those of this file")
    parser.add_argument("-j", "--jobs", type=int, default=2)
    parser.add_argument("--no-baseline", action="store_true")
    arguments = parser.parse_args()
    lists = [path for path in LISTS if arguments.list in ("", path.name)]
    mutants = [
        mutant
        for mutant in read_list(lists)
        if not arguments.names or any(name in mutant.name for name in arguments.names)
    ]
    waiting: queue.SimpleQueue[Mutant] = queue.SimpleQueue()
    for mutant in mutants:
        waiting.put(mutant)
    ends: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        folders = [Path(folder) / str(number) for number in range(arguments.jobs)]
        for to in folders:
            copy_tree(to)
        trees = [Tree(to) for to in folders]
        if not arguments.no_baseline:
            tests = {test for m in mutants for test in trees[0].tests_of(m)}
            python = sorted(test for test in tests if not test.endswith(".ts"))
            code, output = run_tests(folders[0], python, _BASELINE_TIMEOUT_S)
            if not code and len(python) < len(tests):
                code, output = run_web_tests(folders[0], sorted(tests - {*python}))
            if code:
                print(f"the tests fail without any mutant:\n{output}")
                return 1
        workers = [Worker(tree, waiting, ends) for tree in trees]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    killed = sum(end.startswith("killed") for end in ends.values())
    argued = [m for m in mutants if ends[m.name] == "equivalent"]
    left = [
        name
        for name, end in ends.items()
        if end != "equivalent" and not end.startswith("killed")
    ]
    print(
        f"\n{killed} of {len(mutants) - len(argued)} killed; {len(argued)} equivalent"
    )
    for mutant in argued:
        print(f"  {mutant.name}: {mutant.equivalent}")
    for name in left:
        print(f"  {name}: {ends[name]}")
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
