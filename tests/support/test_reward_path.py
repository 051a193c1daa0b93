"""Where one reward goes on its way into a released sum, and where it never goes."""

from __future__ import annotations

import pytest

from tests.support.reward_path import Trail, follow

# Files with a function that has the value in its hands; a new one needs a reason.
# Two serve people who arrive as well: `contributions` checks, `run_loop` decides.
MOST = {"memory": 24, "grpc": 28, "flower": 30}
ALWAYS = (
    "clients/rewards/local.py",
    "clients/node/node.py",
    "clients/node/randomizer.py",
    "clients/secure_sum/sealed.py",
    "protocol/secure_sum/context.py",
    "strategy/secure_sum/sealed.py",
    "strategy/run/analyzer.py",
)
# What keeps accounts, asks for consent, writes the record or tells the operator.
NEVER = (
    "clients/consent.py",
    "clients/node/ledger",
    "clients/node/spends",
    "protocol/accounting/",
    "protocol/files/logs",
    "strategy/store/",
    "strategy/watch/",
)


@pytest.fixture(scope="module", params=list(MOST))
def followed(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Trail]:
    kind: str = request.param
    return kind, follow(kind, tmp_path_factory.mktemp(kind))


def test_the_trail_leads_from_the_source_to_the_released_sum(
    followed: tuple[str, Trail],
) -> None:
    _, trail = followed
    assert trail.ended
    assert set(ALWAYS) <= set(trail.files)
    assert trail.files.index(ALWAYS[0]) < trail.files.index(ALWAYS[-1])


def test_the_value_passes_through_few_files(followed: tuple[str, Trail]) -> None:
    kind, trail = followed
    assert len(trail.files) <= MOST[kind], trail.files


def test_neither_ledger_nor_record_nor_log_ever_has_the_value(
    followed: tuple[str, Trail],
) -> None:
    _, trail = followed
    assert [file for file in trail.files if file.startswith(NEVER)] == []
