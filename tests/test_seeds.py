"""What decides how a run goes is drawn from seeds, also where tests share it."""

from __future__ import annotations

import numpy as np
import pytest

from wallflower.protocol.noise.bits import OsBits


def draw() -> tuple[int, int]:
    """Draw as nodes draw noise, and as sources draw rewards."""
    return int(OsBits().words(1)[0]) % 10**9, int(
        np.random.default_rng().integers(10**9)
    )


@pytest.fixture(scope="module")
def shared() -> tuple[int, int]:
    return draw()


def test_the_draws_of_a_test_repeat_themselves() -> None:
    assert draw() == (791_436_421, 173_335_035)


def test_the_draws_of_what_tests_share_repeat_themselves(
    shared: tuple[int, int],
) -> None:
    assert shared == (305_927_809, 642_441_160)
