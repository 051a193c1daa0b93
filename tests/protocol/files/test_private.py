"""Nobody but the owner reads what a run or a node writes, whatever the umask is."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from wallflower.protocol.files.private import private_directory, private_file


@pytest.fixture
def _open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.usefixtures("_open_umask")
def test_a_new_folder_and_a_new_file_belong_to_their_owner(tmp_path: Path) -> None:
    private_directory(tmp_path / "runs" / "one")
    private_file(tmp_path / "runs" / "one" / "journal")
    assert mode(tmp_path / "runs" / "one") == 0o700
    assert mode(tmp_path / "runs" / "one" / "journal") == 0o600


def test_a_file_that_others_could_read_is_taken_from_them(tmp_path: Path) -> None:
    path = tmp_path / "old"
    path.write_text("kept")
    path.chmod(0o644)
    private_file(path)
    assert mode(path) == 0o600
    assert path.read_text() == "kept"


def test_a_folder_that_was_there_before_is_left_alone(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    private_directory(tmp_path)
    assert mode(tmp_path) == 0o755
