"""Files and folders that belong to one account of the machine and nobody else.

Who was asked for what, how a run stands and what a user spent is no business of other
accounts, whatever the process's umask. SQLite gives its ``-wal`` and ``-shm`` files the
mode of the database, so the database must have the right one before it is opened.
"""

from __future__ import annotations

import errno
import os
import secrets
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


def write_anew(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Replace `path` by a new file: whole, or not at all.

    A link that lies there is replaced, never followed: a run's directory may come from
    somebody else. `mode` is subject to the umask.
    """
    draft = path.with_name(f".{path.name[:200]}.{secrets.token_hex(4)}")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        draft.replace(path)
    except BaseException:
        draft.unlink()
        raise


def write_output(path: Path, content: bytes) -> None:
    """Write where the operator said: a new file, or into a pipe or device."""
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if path.exists() and not path.is_file():
        path.write_bytes(content)
    else:
        write_anew(path, content, mode=0o666)
