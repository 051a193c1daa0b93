"""What is promised of a run holds on PostgreSQL too."""

from __future__ import annotations

from tests.strategy.store.test_run_store import *  # noqa: F403
