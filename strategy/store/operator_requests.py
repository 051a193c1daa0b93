"""What an operator asks of a run under way: to pause, or to retire an arm.

A request is a file in the run directory, so that it reaches a server in any process,
Flower's included; or a row, where the run is in a database that several hosts share.
The server applies it when the round under way is over. A request to retire an arm
outlives a crash: an arm that harms people must not come back by a restart.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path

from wallflower.protocol.errors import JournalError, UnavailableError
from wallflower.protocol.files.private import write_anew

PAUSE_FILE = "pause"
_PREFIX = "retire-"


class OperatorRequests(ABC):
    """What an operator asks of one run."""

    @abstractmethod
    def request_pause(self) -> None:
        """Ask whoever works on the run to stop after the round under way."""

    @abstractmethod
    def is_pause_requested(self) -> bool:
        """Return whether somebody asked."""

    @abstractmethod
    def withdraw_pause(self) -> None:
        """Take the request back."""

    @abstractmethod
    def request_retirement(self, arm: int, reason: str) -> None:
        """Ask whoever works on the run to retire an arm."""

    @abstractmethod
    def read_retirements(self) -> Mapping[int, str]:
        """Return the arms that somebody asked to retire, with the reasons, in order.

        Raise JournalError for a request that cannot be read: it is never passed over.
        """

    @abstractmethod
    def withdraw_retirement(self, arm: int) -> None:
        """Take the request away: it is in the journal, or could not be fulfilled."""


class RequestFiles(OperatorRequests):
    """Requests as files in a run directory; each is there whole or not at all."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir

    def request_pause(self) -> None:
        """Make the file."""
        path = self._run_dir / PAUSE_FILE
        try:
            path.touch(mode=0o600)
        except OSError as error:
            raise UnavailableError(
                f"{path} cannot be written ({error.strerror})"
            ) from None

    def is_pause_requested(self) -> bool:
        """Look for the file."""
        return (self._run_dir / PAUSE_FILE).exists()

    def withdraw_pause(self) -> None:
        """Remove the file."""
        path = self._run_dir / PAUSE_FILE
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise UnavailableError(
                f"{path} cannot be removed ({error.strerror}); take it away"
            ) from None

    def request_retirement(self, arm: int, reason: str) -> None:
        """Write a file with the reason."""
        path = self._path(arm)
        try:
            write_anew(path, reason.encode())
        except OSError as error:
            raise UnavailableError(
                f"{path} cannot be written ({error.strerror})"
            ) from None

    def read_retirements(self) -> Mapping[int, str]:
        """Read all files."""
        found: dict[int, str] = {}
        for path in self._run_dir.glob(f"{_PREFIX}*"):
            arm = path.name.removeprefix(_PREFIX)
            if arm.isdecimal():
                found[int(arm)] = _reason(path)
        return dict(sorted(found.items()))

    def withdraw_retirement(self, arm: int) -> None:
        """Remove the file."""
        self._path(arm).unlink(missing_ok=True)

    def _path(self, arm: int) -> Path:
        return self._run_dir / f"{_PREFIX}{arm}"


def _reason(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise JournalError(
            f"{path} cannot be read ({error}): it asks to retire an arm. Take it away "
            "and ask again by `wallflower retire`"
        ) from None
