"""A short list in a file that may change while a process runs: one word a line.

``#`` starts a comment. The file is read again when it changes, so that revoking needs
no restart.
"""

from __future__ import annotations

from pathlib import Path

from wallflower.protocol.errors import ConfigError


class WatchedFile:
    """The words of a file, as of now.

    Parameters
    ----------
    path : Path
        The file. While it was never there it lists nothing; one that vanishes or
        cannot be read is an error, because letting everybody in would be the wrong
        default.
    required : bool
        The file must be there from the start.
    """

    def __init__(self, path: Path, *, required: bool = False) -> None:
        self._path = path
        self._seen = required
        self._stamp: tuple[int, int, int] | None = None
        self._words: frozenset[str] = frozenset()

    def read(self) -> frozenset[str]:
        """Return the words; raises ConfigError."""
        try:
            status = self._path.stat()
            stamp = (status.st_mtime_ns, status.st_size, status.st_ino)
            if stamp == self._stamp:
                return self._words
            lines = self._path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            if isinstance(error, FileNotFoundError) and not self._seen:
                return self._words
            raise ConfigError(
                str(self._path), f"revocations unreadable ({error})"
            ) from None
        words = (line.partition("#")[0].strip() for line in lines)
        self._words = frozenset(word for word in words if word)
        self._stamp, self._seen = stamp, True
        return self._words


class RevokedSerials:
    """Serial numbers of revoked certificates, as the file says now."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = WatchedFile(path)
        self._words: frozenset[str] = frozenset()
        self._serials: frozenset[int] = frozenset()
        self.read()  # a garbled list is said at the start

    def read(self) -> frozenset[int]:
        """Return the serials; raises ConfigError."""
        words = self._file.read()
        if words != self._words:
            for word in words:
                if not word.isdecimal():
                    raise ConfigError(
                        str(self._path), f'expected a serial, got "{word}"'
                    )
            self._words, self._serials = words, frozenset(map(int, words))
        return self._serials

    def __contains__(self, serial: object) -> bool:
        return serial in self.read()
