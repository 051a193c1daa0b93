"""Settings of all tests: none of them has a stopwatch."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("without-deadlines", deadline=None)
settings.load_profile("without-deadlines")
