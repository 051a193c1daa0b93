"""The wish to stop after the round under way: a file in the run directory.

A file reaches a server in any process, Flower's included. Whoever goes on with the run
takes it away.
"""

from __future__ import annotations

from pathlib import Path

from wallflower.protocol.errors import UnavailableError

FILE_NAME = "pause"


def ask(run_dir: Path) -> None:
    """Ask whoever works on the run to stop after the round under way."""
    try:
        (run_dir / FILE_NAME).touch(mode=0o600)
    except OSError as error:
        raise UnavailableError(
            f"{run_dir / FILE_NAME} cannot be written ({error.strerror})"
        ) from None


def asked(run_dir: Path) -> bool:
    """Tell whether somebody asked."""
    return (run_dir / FILE_NAME).exists()


def forget(run_dir: Path) -> None:
    """Take the wish back."""
    try:
        (run_dir / FILE_NAME).unlink(missing_ok=True)
    except OSError as error:
        raise UnavailableError(
            f"{run_dir / FILE_NAME} cannot be removed ({error.strerror}); take it away"
        ) from None
