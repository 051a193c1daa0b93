"""The chain of seats, and processes that race for them, on PostgreSQL too."""

from __future__ import annotations

from tests.strategy.store.test_seat_chain import *  # noqa: F403
