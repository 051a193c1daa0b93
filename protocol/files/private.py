"""Files and folders that belong to one account of the machine and nobody else.

Who was asked for what, how a run stands and what a user spent is no business of other
accounts, whatever the process's umask. SQLite gives its ``-wal`` and ``-shm`` files the
mode of the database, so the database must have the right one before it is opened.
"""

from __future__ import annotations

import os
from pathlib import Path


def private_directory(path: Path) -> None:
    """Make a folder with mode 0700; one that is there already is left as it is.

    It may be a folder of the operator's own choice; the files in it are private all the
    same.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    path.mkdir(mode=0o700, exist_ok=True)


def private_file(path: Path) -> None:
    """Make an empty file with mode 0600, or take others' rights to one away."""
    handle = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        if os.fstat(handle).st_mode & 0o077:
            os.fchmod(handle, 0o600)
    finally:
        os.close(handle)
