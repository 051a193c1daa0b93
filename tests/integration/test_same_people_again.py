"""Later experiments with the same people: nobody is drawn whose budget is spent.

Nodes keep one ledger over all experiments. What each of three experiments may ask is
told by the ledger, whatever carries the requests.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from tests.integration.test_nodes_away_and_unwilling import (
    TRANSPORTS,
    carry_out,
    experiment,
)
from wallflower.clients.node.ledger import Ledger
from wallflower.clients.node.ledger_tables import read_spends
from wallflower.clients.node.spends import Price, Spend
from wallflower.engines.population import hosted_ledger
from wallflower.protocol.accounting.account import Cost
from wallflower.protocol.errors import UnavailableError
from wallflower.protocol.files.sections import NodeSettings, RewardSettings
from wallflower.strategy.config import (
    ExperimentConfig,
    PolicySettings,
    PrivacySettings,
)
from wallflower.strategy.run.verify import verify
from wallflower.strategy.store.events import Event, RoundFinished
from wallflower.strategy.store.journal import Journal

NODES, USERS = 12, 60
POLICY = """
smallest-cohort = 2
smallest-floor-fraction = 0
largest-total-epsilon = {total}
largest-participations = {times}
"""


async def _ignore(event: Event, places: object) -> None:
    await asyncio.sleep(0)


def with_ledger(
    transport: str, backend: str, tmp_path: Path, total: str = "1", times: int = 1
) -> ExperimentConfig:
    """Make arms that no sum can tell apart, so that a run asks whomever it can."""
    policy = tmp_path / "policy.toml"
    policy.write_text(POLICY.format(total=total, times=times))
    return replace(
        experiment(transport, backend),
        policy=PolicySettings(first_batch=60),
        nodes=NodeSettings(NODES, USERS, policy, tmp_path / "people.sqlite"),
        rewards=RewardSettings(means=(0.5, 0.5)),
    )


def spend_before(path: Path, spent: Mapping[str, Sequence[str]]) -> None:
    """Spend all of these users' budget in an earlier run."""

    async def write(ledger: Ledger) -> None:
        for node, users in spent.items():
            cost = Cost("pure", Fraction(1))
            await ledger.spend(
                Spend(
                    node_id=node,
                    run_id="earlier",
                    cohort_id="c",
                    cost=cost,
                    users=tuple(users),
                    most_epsilon=Fraction(1),
                    privacy_delta=Fraction(1, 10**6),
                    most_participations=1,
                    price=Price("earlier", cost, 5),
                )
            )

    with closing(hosted_ledger(path.parent, path)) as ledger:
        asyncio.run(write(ledger))


def carry_out_here(
    config: ExperimentConfig, run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run an experiment under an id of its own."""
    carry_out(config, run_dir, monkeypatch, _ignore, run_dir.name)


def lost(run_dir: Path) -> Counter[str]:
    """Count why people who were asked are in no sum; the record must hold."""
    with Journal.read(run_dir) as journal:
        assert [p for check in verify(journal) for p in check.problems] == []
        found: Counter[str] = Counter()
        for cohort in journal.cohorts():
            found.update(cohort.losses)
        return found


@pytest.mark.parametrize("backend", ["sealed", "secagg-plus"])
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_people_without_budget_are_never_drawn(
    transport: str, backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = with_ledger(transport, backend, tmp_path)
    # A third of everybody, and of half of the nodes more than dropout allows.
    spent = {
        f"node-{node}": [f"u{user}" for user in range(40 if node % 2 else 5)]
        for node in range(NODES)
    }
    people = tmp_path / "people.sqlite"
    spend_before(people, spent)
    carry_out_here(config, tmp_path / "run", monkeypatch)
    assert lost(tmp_path / "run") == {}
    with Journal.read(tmp_path / "run") as journal:
        for _, node, users in journal.invitations():
            assert not set(users) & set(spent[node])
        assert all(cohort.state == "summed" for cohort in journal.cohorts())
        last = journal.last_round()
        assert last is not None
        assert last.finished == "users-exhausted"
        askable = journal.count_askable()
    # Who was not asked could not fill another round; nobody is left out twice.
    assert askable.left_out == sum(map(len, spent.values()))
    assert askable.people == NODES * USERS


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_third_experiment_finds_nobody_and_says_so(
    transport: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = with_ledger(transport, "sealed", tmp_path)
    half = replace(config, privacy=PrivacySettings(epsilon=Fraction(1, 2)))
    for name in ("first", "second"):
        carry_out_here(half, tmp_path / name, monkeypatch)
        assert lost(tmp_path / name) == {}
        with Journal.read(tmp_path / name) as journal:
            asked = sum(len(users) for _, _, users in journal.invitations())
            run_id = journal.run_id
        spends = read_spends(tmp_path / "people.sqlite", run_id)
        assert sum(map(len, spends.values())) == asked > NODES * USERS / 2
    with pytest.raises(UnavailableError) as ended:
        carry_out_here(half, tmp_path / "third", monkeypatch)
    assert f"of {NODES * USERS} people can still be asked" in str(ended.value)
    assert "budget does not allow it" in str(ended.value)
    assert "smaller privacy.epsilon" in str(ended.value)
    with Journal.read(tmp_path / "third") as journal:
        assert list(journal.invitations()) == []
        askable = journal.count_askable()
    # Everybody who was asked twice is left out, and nobody else.
    assert askable.able + askable.left_out == NODES * USERS
    assert askable.left_out > 0
    assert f"{askable.able:,} of 720 people" in str(ended.value)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_people_who_may_come_again_are_asked_as_long_as_their_budget_lasts(
    transport: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run may ask everybody three times; budgets last for two of them."""
    config = with_ledger(transport, "sealed", tmp_path, times=3)
    config = replace(
        config,
        privacy=PrivacySettings(epsilon=Fraction(1, 2), max_participations=3),
        nodes=replace(config.nodes, users=30),
    )
    carry_out_here(config, tmp_path / "run", monkeypatch)
    assert lost(tmp_path / "run") == {}
    often: Counter[tuple[str, str]] = Counter()
    with Journal.read(tmp_path / "run") as journal:
        for _, node, users in journal.invitations():
            often.update((node, user) for user in users)
    assert max(often.values()) == 2


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_budget_spent_elsewhere_during_a_run_is_noticed_in_its_next_round(
    transport: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = with_ledger(transport, "sealed", tmp_path)

    async def react(event: Event, places: object) -> None:
        if isinstance(event, RoundFinished) and event.number == 1:
            with Journal.read(tmp_path / "run") as journal:
                asked = {
                    user
                    for _, node, users in journal.invitations()
                    for user in users
                    if node == "node-0"
                }
            fresh = [f"u{user}" for user in range(USERS) if f"u{user}" not in asked]
            await asyncio.to_thread(
                spend_before, tmp_path / "people.sqlite", {"node-0": fresh}
            )

    carry_out(config, tmp_path / "run", monkeypatch, react, "run")
    assert lost(tmp_path / "run").keys() <= {"budget-exceeded"}
    with Journal.read(tmp_path / "run") as journal:
        rounds = {c.cohort_id: c.round_number for c in journal.cohorts()}
        of_node = [
            rounds[cohort]
            for cohort, node, _ in journal.invitations()
            if node == "node-0"
        ]
    assert max(of_node) <= 2
    assert max(rounds.values()) > 2


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_people_without_budget_are_not_drawn_after_a_restart_either(
    transport: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = with_ledger(transport, "sealed", tmp_path)
    spent = {f"node-{node}": [f"u{user}" for user in range(30)] for node in range(6)}
    spend_before(tmp_path / "people.sqlite", spent)

    async def react(event: Event, places: object) -> None:
        if isinstance(event, RoundFinished) and event.number == 1:
            raise UnavailableError("the server is stopped here")

    run_dir = tmp_path / "run"
    with pytest.raises(UnavailableError, match="stopped here"):
        carry_out(config, run_dir, monkeypatch, react, "run")
    carry_out(config, run_dir, monkeypatch, _ignore, "run")
    assert lost(run_dir) == {}
    with Journal.read(run_dir) as journal:
        for _, node, users in journal.invitations():
            assert not set(users) & set(spent.get(node, ()))
        assert max(cohort.round_number for cohort in journal.cohorts()) > 1
        assert journal.count_askable().left_out == 180
