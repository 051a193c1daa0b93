"""What intruders send is refused by a worker on PostgreSQL too."""

from __future__ import annotations

import secrets

import psycopg
import pytest

from tests.support.postgres_server import PostgresServer
from tests.wallflower.serve.conftest import open_wires, seat_server
from tests.wallflower.serve.test_attacks import *  # noqa: F403

__all__ = ["open_wires", "seat_server"]


@pytest.fixture
def store_url(postgres: PostgresServer) -> str:
    """A database of its own for each test: their runs have one name."""
    name = f"attacked_{secrets.token_hex(4)}"
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return postgres.url.replace("/postgres?", f"/{name}?")
