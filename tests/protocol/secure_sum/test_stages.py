from __future__ import annotations

import pytest

from wallflower.protocol.secure_sum.backends import (
    BACKENDS,
    STAGES,
    is_closed,
    reward_stages,
    stage_named,
    stages_of,
)


def test_no_two_stages_share_a_number_or_a_name() -> None:
    assert len({stage.number for stage in STAGES}) == len(STAGES)
    assert len({stage.name for stage in STAGES}) == len(STAGES)


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_back_end_takes_the_reward_once_before_the_set_is_closed(
    backend: str,
) -> None:
    stages = list(stages_of(backend).values())
    assert [stage.number for stage in stages] == sorted(s.number for s in stages)
    (reward,) = [stage for stage in stages if stage.takes_reward]
    closed = [stage.closed for stage in stages]
    assert closed == sorted(closed)
    assert closed[-1]
    assert not reward.closed


def test_the_table_says_what_the_protocols_do() -> None:
    assert reward_stages() == ("share", "seal", "submit")
    closed = [s.name for s in STAGES if s.closed]
    assert closed == ["confirm", "unmask", "open", "release"]
    once = [s.name for s in STAGES if s.given_once]
    assert once == ["mask", "confirm", "unmask", "open"]
    assert is_closed("unmask")
    assert not is_closed("mask")
    assert not is_closed("over")
    assert stage_named("mask").number == stages_of("secagg-plus")[6].number
