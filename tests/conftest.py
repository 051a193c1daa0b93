"""Settings of all tests: none of them has a stopwatch."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

# Where a change is judged, by the same examples each time; elsewhere by new ones.
settings.register_profile(
    "without-deadlines", deadline=None, derandomize="CI" in os.environ
)
settings.load_profile("without-deadlines")


@pytest.fixture
def one_ray_at_a_time(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Let other workers' tests wait: Ray gives its own start 30 s, and no more.

    Two at once on two busy cores do not make it.
    """
    everybodys = tmp_path_factory.getbasetemp().parent
    with (everybodys / "ray.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
