"""Settings of all tests: no deadlines, and draws seeded by a test's name."""

from __future__ import annotations

import contextlib
import fcntl
import gc
import os
import random
from collections.abc import Generator, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import settings

from wallflower.engines.ray_start import ray_environment, reserved_port
from wallflower.protocol.errors import RandomnessError
from wallflower.protocol.noise import bits

# The same examples each time, so that no run fails by chance; EXPLORE=1 draws new ones.
settings.register_profile(
    "without-deadlines", deadline=None, derandomize="EXPLORE" not in os.environ
)
settings.load_profile("without-deadlines")


# The watch of the system's generator draws words for its start-up test, once a process:
# not from the seeds of whichever test comes first. Tests say what it finds.
with contextlib.suppress(RandomnessError):
    bits.OsBits().words(1)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep modules and tests, which stay to the end, out of garbage collection."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(autouse=True)
def seeded_draws(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seed noise, assignment and synthetic rewards of this process by the test's name.

    Such a draw decides how a run goes, so a test that rests on it would fail by
    chance. Keys, nonces and names still come from the operating system: no outcome
    depends on them. A test of the system's randomness itself is marked `os_randomness`.
    """
    if not request.node.get_closest_marker("os_randomness"):
        _seed(monkeypatch, request.node.nodeid)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
) -> Generator[None, object, object]:
    """Seed what is made for several tests, which is made before `seeded_draws`."""
    if fixturedef.scope == "function" or request.node.get_closest_marker(
        "os_randomness"
    ):
        return (yield)
    number = getattr(request, "param_index", 0)
    name = f"{fixturedef.baseid}::{fixturedef.argname}[{number}]"
    with pytest.MonkeyPatch.context() as monkeypatch:
        _seed(monkeypatch, name)
        return (yield)


def _seed(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    source = random.Random(name)
    seeded_generator = np.random.default_rng

    def draw_words(count: int) -> bits.Words:
        return np.frombuffer(source.randbytes(8 * count), dtype=np.uint64)

    def default_rng(seed: Any = None) -> np.random.Generator:
        return seeded_generator(source.getrandbits(128) if seed is None else seed)

    monkeypatch.setattr(bits, "_from_system", draw_words)
    monkeypatch.setattr(np.random, "default_rng", default_rng)


@pytest.fixture
def one_ray_at_a_time(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Give Ray time to start, and the machine to one test: the others wait."""
    shared = tmp_path_factory.getbasetemp().parent
    with (shared / "ray.lock").open("w") as lock, reserved_port() as port:
        for name, value in ray_environment(port).items():
            monkeypatch.setenv(name, value)
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
