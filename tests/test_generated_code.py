"""What is generated must match what it was generated from."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]


def test_protocol_wire_is_what_make_proto_gives(tmp_path: Path) -> None:
    fresh = tmp_path / "protocol" / "wire"
    fresh.mkdir(parents=True)
    subprocess.run(
        [
            "make",
            "-s",
            "-o",
            "env",
            "proto",
            f"PROTO_OUT={fresh}",
            f"BIN={Path(sys.executable).parent}",
        ],
        cwd=ROOT,
        check=True,
        capture_output=True,
        timeout=300,
    )
    committed = ROOT / "protocol" / "wire"
    generated = {path.name: path.read_text() for path in fresh.iterdir()}
    stored = {path.name: path.read_text() for path in committed.glob("*_pb2*")}
    assert generated.keys() == stored.keys()
    stale = [name for name, text in generated.items() if stored[name] != text]
    assert not stale, f"run `make proto`: {stale} differ from proto/"


def test_the_data_model_names_every_table() -> None:
    page = (ROOT / "docs" / "data-model.md").read_text(encoding="utf-8")
    made = re.compile(r"CREATE TABLE (?:IF NOT EXISTS )?(\w+)")
    tables = {
        table
        for folder in ("strategy", "clients/node")
        for path in (ROOT / folder).rglob("*.py")
        for table in made.findall(path.read_text())
    }
    assert len(tables) > 10
    assert {table for table in tables if f"`{table}`" not in page} == set()


def test_the_data_model_names_every_file_of_a_run_a_node_and_a_shuffler() -> None:
    page = (ROOT / "docs" / "data-model.md").read_text(encoding="utf-8")
    joined = re.compile(r'\b(?:run_dir|home|directory|folder|self\.path) / "([^"]+)"')
    named = re.compile(
        r'^(?:[A-Z_]*FILE|FILE_NAME|LOCK_NAME) = "([^"]+)"', re.MULTILINE
    )
    files = {
        name
        for folder in (
            "clients",
            "strategy",
            "wallflower/engines",
            "wallflower/shuffler",
        )
        for path in (ROOT / folder).rglob("*.py")
        for pattern in (joined, named)
        for name in pattern.findall(path.read_text(encoding="utf-8"))
    }
    assert {"journal.sqlite", "lock", "run-token.secret", "ledger.counter"} <= files
    output = page.replace("/`", "`")
    elsewhere = {"wallflower", "pyproject.toml"}  # of Flower's home and of an app
    assert {name for name in files if f"`{name}`" not in output} == elsewhere


@pytest.mark.parametrize("name", ["ruff-check", "ruff-format"])
def test_the_hooks_leave_generated_code_alone_although_they_are_given_its_name(
    name: str,
) -> None:
    stated = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    entries = {hook["id"]: hook["entry"] for hook in stated["repos"][0]["hooks"]}
    program, *words = entries[name].split()
    generated = "protocol/wire/node_pb2.py"
    done = subprocess.run(
        [Path(sys.executable).with_name(Path(program).name), *words, generated],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
