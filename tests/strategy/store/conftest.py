"""Where the runs of these tests are kept; `tests/postgres` runs them elsewhere too."""

from __future__ import annotations

import pytest


@pytest.fixture
def store_url() -> str:
    """The address of a database; empty for SQLite."""
    return ""
