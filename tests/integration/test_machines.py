"""A small part of `make check-machines`: every state of small worlds, planted bugs."""

from __future__ import annotations

import pytest

from tests.support.machines.dealing_lies import SHOWN
from tests.support.machines.faults import ALL_INVARIANTS
from tests.support.machines.plants import PLANTS
from tests.support.machines.worlds import SMALL_WORLDS, explore_world, find_plant

# Not traced: the same lines again and again, which others run too.
pytestmark = pytest.mark.no_cover

QUICK = (
    "a member opens a set whatever its quorum",
    "an answer leaves before its claim is written",
    "a restarted server forgets who is out",
)


@pytest.mark.slow  # explores thousands of states
@pytest.mark.parametrize("name", SMALL_WORLDS)
def test_no_state_of_a_small_world_breaks_an_invariant(name: str) -> None:
    found = explore_world(name, SMALL_WORLDS)
    assert found.held, found.line
    assert found.states > 40


@pytest.mark.parametrize("name", QUICK)
def test_a_planted_bug_is_found(name: str) -> None:
    found = find_plant(name)
    assert found.held, found.line


@pytest.mark.parametrize("name", PLANTS)
def test_what_a_planted_bug_replaces_is_there(name: str) -> None:
    for where, replaced, _ in PLANTS[name].patches:
        assert hasattr(where, replaced)


def test_every_invariant_has_a_planted_bug() -> None:
    invariants = {*ALL_INVARIANTS, SHOWN}
    assert {plant.invariant for plant in PLANTS.values()} == invariants
