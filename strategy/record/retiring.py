"""The wish to retire an arm by hand: a file in the run directory for each arm.

Whoever works on the run, in any process, heeds it when the round under way is over. It
outlives a crash: an arm that harms people must not come back by a restart.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from wallflower.protocol.errors import UnavailableError
from wallflower.protocol.files.private import private_file

_PREFIX = "retire-"


def ask(run_dir: Path, arm: int, reason: str) -> None:
    """Ask whoever works on the run to retire an arm; the file is there whole."""
    path = _path(run_dir, arm)
    new = path.with_suffix(".new")
    try:
        private_file(new)
        new.write_text(reason, encoding="utf-8")
        new.replace(path)
    except OSError as error:
        raise UnavailableError(f"{path} cannot be written ({error.strerror})") from None


def asked(run_dir: Path) -> Mapping[int, str]:
    """Give the arms that somebody asked to retire, with the reasons, in order."""
    found: dict[int, str] = {}
    for path in run_dir.glob(f"{_PREFIX}*"):
        arm = path.name.removeprefix(_PREFIX)
        if arm.isdecimal():
            found[int(arm)] = path.read_text(encoding="utf-8")
    return dict(sorted(found.items()))


def forget(run_dir: Path, arm: int) -> None:
    """Take the wish away: it is in the journal, or could not be fulfilled."""
    _path(run_dir, arm).unlink(missing_ok=True)


def _path(run_dir: Path, arm: int) -> Path:
    return run_dir / f"{_PREFIX}{arm}"
