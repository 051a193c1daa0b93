"""What an operator asks of a run under way: to pause, or to retire an arm.

A request is a file in the run directory, so that it reaches a server in any process,
Flower's included. The server applies it when the round under way is over. A request to
retire an arm outlives a crash: an arm that harms people must not come back by a
restart.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from wallflower.protocol.errors import JournalError, UnavailableError
from wallflower.protocol.files.private import write_anew

PAUSE_FILE = "pause"


def request_pause(run_dir: Path) -> None:
    """Ask whoever works on the run to stop after the round under way."""
    try:
        (run_dir / PAUSE_FILE).touch(mode=0o600)
    except OSError as error:
        raise UnavailableError(
            f"{run_dir / PAUSE_FILE} cannot be written ({error.strerror})"
        ) from None


def is_pause_requested(run_dir: Path) -> bool:
    """Return whether somebody asked."""
    return (run_dir / PAUSE_FILE).exists()


def withdraw_pause(run_dir: Path) -> None:
    """Take the request back."""
    try:
        (run_dir / PAUSE_FILE).unlink(missing_ok=True)
    except OSError as error:
        raise UnavailableError(
            f"{run_dir / PAUSE_FILE} cannot be removed ({error.strerror}); take it away"
        ) from None


_PREFIX = "retire-"


def request_retirement(run_dir: Path, arm: int, reason: str) -> None:
    """Ask whoever works on the run to retire an arm; the file is there whole."""
    path = _path(run_dir, arm)
    try:
        write_anew(path, reason.encode())
    except OSError as error:
        raise UnavailableError(f"{path} cannot be written ({error.strerror})") from None


def read_retirements(run_dir: Path) -> Mapping[int, str]:
    """Return the arms that somebody asked to retire, with the reasons, in order.

    Raise JournalError for a request that cannot be read: it is never passed over.
    """
    found: dict[int, str] = {}
    for path in run_dir.glob(f"{_PREFIX}*"):
        arm = path.name.removeprefix(_PREFIX)
        if arm.isdecimal():
            found[int(arm)] = _reason(path)
    return dict(sorted(found.items()))


def withdraw_retirement(run_dir: Path, arm: int) -> None:
    """Take the request away: it is in the journal, or could not be fulfilled."""
    _path(run_dir, arm).unlink(missing_ok=True)


def _reason(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise JournalError(
            f"{path} cannot be read ({error}): it asks to retire an arm. Take it away "
            "and ask again by `wallflower retire`"
        ) from None


def _path(run_dir: Path, arm: int) -> Path:
    return run_dir / f"{_PREFIX}{arm}"
