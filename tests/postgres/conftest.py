"""The tests here need a PostgreSQL server, which they start: `make test-postgres`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.strategy.store.conftest import new_server, server
from tests.support.postgres_server import PostgresServer, running_postgres

__all__ = ["new_server", "server"]  # fixtures of the same tests on SQLite


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.postgres)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    with running_postgres() as server:
        yield server


@pytest.fixture
def store_url(postgres: PostgresServer) -> str:
    return postgres.url
