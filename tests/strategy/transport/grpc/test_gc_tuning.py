from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from wallflower.strategy.transport.grpc.gc_tuning import TunedGc


@pytest.fixture
def tuned() -> Iterator[TunedGc]:
    gc.unfreeze()  # tests/conftest.py has set the collected tests aside
    settled, before = TunedGc(), gc.get_threshold()
    yield settled
    settled.close()
    assert gc.get_freeze_count() == 0
    assert gc.get_threshold() == before
    gc.freeze()


def test_few_streams_are_left_to_the_collector(tuned: TunedGc) -> None:
    tuned.tune(100, 0.0)
    assert gc.get_freeze_count() == 0


def test_what_many_streams_hold_is_set_aside(tuned: TunedGc) -> None:
    tuned.tune(1000, 0.0)
    assert gc.get_freeze_count() > 0


@pytest.mark.parametrize("streams", [1000, 8000])
def test_a_cohort_is_not_walked_over_while_it_grows(
    tuned: TunedGc, streams: int
) -> None:
    """Otherwise a user costs the more, the more there are in the cohort."""
    tuned.tune(streams, 0.0)
    before = [one["collections"] for one in gc.get_stats()]
    cohort = [[number] for number in range(17 * streams)]  # as many as a real one makes
    assert len(cohort) == 17 * streams
    after = [one["collections"] for one in gc.get_stats()]
    assert [new - old for new, old in zip(after, before, strict=True)] == [0, 0, 0]


@pytest.mark.slow  # collects many objects
def test_when_the_streams_have_gone_the_collector_comes_as_before(
    tuned: TunedGc,
) -> None:
    before = gc.get_threshold()
    tuned.tune(8000, 0.0)
    assert gc.get_threshold() != before
    tuned.tune(0, 1.0)
    assert gc.get_threshold() == before
    assert gc.get_freeze_count() == 0


class Knot:
    """Holds itself, so that only the collector can free it."""

    freed = 0

    def __init__(self) -> None:
        self.itself = self

    def __del__(self) -> None:
        Knot.freed += 1


@pytest.mark.slow  # collects many objects
@pytest.mark.parametrize(("streams", "now"), [(1300, 1.0), (700, 1.0), (1000, 601.0)])
def test_cycles_among_it_are_freed_when_streams_change_or_time_passes(
    tuned: TunedGc, streams: int, now: float
) -> None:
    Knot.freed = 0
    knot = Knot()
    tuned.tune(1000, 0.0)
    del knot
    tuned.tune(1001, 1.0)
    assert Knot.freed == 0
    tuned.tune(streams, now)
    assert Knot.freed == 1
