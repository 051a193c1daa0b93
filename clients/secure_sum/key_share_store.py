"""Where a node keeps its share of a run's key between cohorts.

In memory by default. A node whose every message may reach a new process keeps it in its
own sealed store (`clients.host.run_keys`). It is written before the member says that it
holds a good share, and deleted when the dealing is closed.
"""

from __future__ import annotations

from typing import Protocol


class KeyShareStore(Protocol):
    """Secrets of one node and run, by name."""

    def read(self, name: str) -> bytes | None:
        """Return a secret, or None."""
        ...

    def write(self, name: str, secret: bytes) -> None:
        """Keep a secret; on return it is kept."""
        ...

    def delete(self, name: str) -> None:
        """Forget a secret."""
        ...


class MemoryKeyShares:
    """Secrets that live as long as the process."""

    def __init__(self) -> None:
        self._secrets: dict[str, bytes] = {}

    def __repr__(self) -> str:
        return f"MemoryKeyShares({len(self._secrets)} entries)"

    def read(self, name: str) -> bytes | None:
        """Return a secret, or None."""
        return self._secrets.get(name)

    def write(self, name: str, secret: bytes) -> None:
        """Keep a secret."""
        self._secrets[name] = secret

    def delete(self, name: str) -> None:
        """Forget a secret."""
        self._secrets.pop(name, None)
