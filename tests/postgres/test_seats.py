"""What is promised of seats holds on PostgreSQL too."""

from __future__ import annotations

from tests.strategy.store.test_seats import *  # noqa: F403
