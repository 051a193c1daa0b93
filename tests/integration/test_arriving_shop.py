"""A whole experiment over people who arrive, each with their own encryption."""

from __future__ import annotations

from pathlib import Path

import pytest

from wallflower.engines.run import start_run
from wallflower.regret.report import users_until_decided
from wallflower.regret.setup import Request, prepare
from wallflower.results.result import read_result
from wallflower.stated_experiment import read_experiment
from wallflower.strategy.run.verify import verify
from wallflower.strategy.store.journal import Journal

SHOP = Path("examples/checkout.toml")


def simulated_people() -> float:
    request = Request(experiment=read_experiment(SHOP, {}, {}), instances=100)
    prepared = prepare(request)
    for _ in prepared.engine.steps():
        pass
    found = users_until_decided(prepared.engine.result())
    assert found["undecided"] == 0
    return float(found["mean"])


@pytest.mark.slow  # 8,600 people write, noise and encrypt: half a minute
@pytest.mark.timeout(900)  # each of them waits for a disk
def test_the_shop_finds_the_best_checkout_with_as_many_people_as_simulated(
    tmp_path: Path,
) -> None:
    start_run(SHOP, "local", tmp_path / "run")
    with Journal.read(tmp_path / "run") as journal:
        result = read_result(journal)
        problems = [p for check in verify(journal) for p in check.problems]
    assert problems == []
    assert result.winner == "wallet"
    # 99 of 100 simulated shops decide after the same round, with the same people.
    assert result.invited == pytest.approx(simulated_people(), rel=0.1)
    assert (result.void, result.answered) == (0, result.invited)
