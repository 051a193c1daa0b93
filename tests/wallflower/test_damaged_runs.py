"""Every command on damaged run directories; `make soak-damage` tries many more."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.damage.judge import COMMANDS, Bench
from tests.support.damage.kinds import KINDS, damage_copy
from tests.support.damage.specimens import make_specimens
from wallflower.strategy.store.journal import Journal


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(*make_specimens(tmp_path_factory.mktemp("specimens")))


@pytest.mark.parametrize("seed", range(len(KINDS)), ids=lambda n: KINDS[n].__name__)
def test_no_command_breaks_or_lies_on_a_damaged_run(seed: int, bench: Bench) -> None:
    verdicts = bench.judge(seed)
    assert len(verdicts) == len(COMMANDS) + 1
    assert [one for one in verdicts if one.problem] == []


def test_every_kind_of_damage_changes_something(bench: Bench, tmp_path: Path) -> None:
    for seed, kind in enumerate(KINDS):
        copy = tmp_path / kind.__name__
        damage_copy(bench.specimens[1], copy, seed)
        before, after = map(_listing, (bench.specimens[1], copy))
        assert before != after, kind.__name__


def test_a_silent_loss_would_be_noticed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the check of the record's end, a cut tail shows in other figures."""
    monkeypatch.setattr(Journal, "check_whole", Journal.check_chain)
    cut = next(n for n, kind in enumerate(KINDS) if kind.__name__ == "cut_tail")
    problems = {one.problem for one in bench.judge(cut, ("export",))}
    assert problems == {"silently another result"}


def _listing(folder: Path) -> dict[str, bytes | str]:
    return {
        path.name: path.read_bytes() if path.is_file() else "no file"
        for path in (folder / name.name for name in folder.iterdir())
    }
