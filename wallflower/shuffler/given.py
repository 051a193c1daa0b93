"""Which cohorts had their heap, on disk before the heap leaves."""

from __future__ import annotations

import os
from pathlib import Path


class Given:
    """One empty file a cohort; its name is the digest of what the cohort was.

    Making it is the claim: the file system lets one of two requests make it.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder = folder

    def claim(self, context: bytes) -> bool:
        """Write a cohort down as over; False where it was already."""
        path = self._folder / context.hex()
        try:
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            return False
        os.close(handle)
        folder = os.open(self._folder, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
        return True

    def over(self, context: bytes) -> bool:
        """Tell whether a cohort is over."""
        return (self._folder / context.hex()).exists()

    def __len__(self) -> int:
        """Give the number of cohorts that are over."""
        return sum(1 for _ in self._folder.iterdir())
