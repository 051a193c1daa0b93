"""Where the runs of these tests are kept; `tests/postgres` runs them elsewhere too."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.stored_seats import Server


@pytest.fixture
def store_url() -> str:
    """The address of a database; empty for SQLite."""
    return ""


@pytest.fixture
def new_server(tmp_path: Path, store_url: str) -> Iterator[Callable[..., Server]]:
    made = list[Server]()

    def make(most: int = 1) -> Server:
        made.append(Server(tmp_path / f"run{len(made)}", store_url, most))
        return made[-1]

    yield make
    for server in made:
        server.close()


@pytest.fixture
def server(new_server: Callable[..., Server]) -> Server:
    return new_server()
