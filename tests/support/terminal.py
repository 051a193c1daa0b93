"""A terminal of a given width: commands in this process, or a process behind a pty."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest
from rich.cells import cell_len

from tests.support.run_fixtures import command, environment
from wallflower.cli import main

_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Screen(io.StringIO):
    """Standard output of a terminal."""

    def isatty(self) -> bool:
        return True


def lines_of(text: str) -> list[str]:
    """Return what is seen of a terminal's output, line by line."""
    return re.split(r"[\r\n]+", _CONTROL.sub("", text))


def widest(text: str) -> int:
    return max(map(cell_len, lines_of(text)))


def shown(monkeypatch: pytest.MonkeyPatch, width: int, *words: str | Path) -> str:
    """Run a command in this process before a terminal; give what it showed."""
    screen = Screen()
    monkeypatch.setattr(sys, "argv", ["wallflower", *map(str, words)])
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "xterm-256color")
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    return screen.getvalue()


def behind_a_pty(width: int, cwd: Path, *words: str | Path) -> str:
    """Run a command as a process in a terminal; give everything it wrote."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, width, 0, 0))
    inherited = {
        k: v for k, v in environment().items() if k not in ("COLUMNS", "LINES")
    }
    process = subprocess.Popen(
        command(*words),
        cwd=cwd,
        env={**inherited, "TERM": "xterm-256color"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    written = b""
    try:
        while part := _read(ours):
            written += part
        assert process.wait(60) == 0, written.decode()
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    return written.decode()


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65_536)
    except OSError:  # Linux says so when the last writer is gone
        return b""
