"""Nobody but the owner reads what a run or a node writes, whatever the umask is."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from wallflower.protocol.files.private import (
    private_directory,
    private_file,
    write_anew,
    write_output,
)


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


def test_a_file_written_anew_takes_the_place_of_a_link(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("precious")
    path = tmp_path / "report.html"
    path.symlink_to(elsewhere)
    write_anew(path, b"page")
    assert (path.read_bytes(), elsewhere.read_text()) == (b"page", "precious")
    assert not path.is_symlink()
    assert sorted(one.name for one in tmp_path.iterdir()) == ["elsewhere", path.name]


def test_a_file_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    with pytest.raises(OSError, match="directory"):
        write_anew(tmp_path / "there", b"page")
    assert [one.name for one in tmp_path.iterdir()] == ["there"]


def test_a_file_written_anew_gets_the_mode_it_was_given(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        write_anew(tmp_path / "public", b"", mode=0o666)
        write_anew(tmp_path / "own", b"")
    finally:
        os.umask(before)
    assert (tmp_path / "public").stat().st_mode & 0o777 == 0o644
    assert (tmp_path / "own").stat().st_mode & 0o777 == 0o600


def test_a_folder_is_no_file_to_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in (Path(), tmp_path):
        with pytest.raises(IsADirectoryError):
            write_output(folder, b"page")
    assert list(tmp_path.iterdir()) == []
