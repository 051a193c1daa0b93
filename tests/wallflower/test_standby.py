"""A second server that waits for the first to end, and then goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.run_fixtures import write
from tests.wallflower.test_run_commands import invoke
from wallflower.engines import run
from wallflower.strategy.config import load_config
from wallflower.strategy.store.journal import Journal
from wallflower.strategy.store.run_store import is_held


def test_a_standby_waits_for_the_other_server_and_finishes_its_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_dir, looks = tmp_path / "run", list[bool]()
    journal = Journal.create(run_dir, "r1", load_config(write(tmp_path)), "local")

    def look(directory: Path) -> bool:
        looks.append(is_held(directory))
        if len(looks) == 2:  # the other server ends while the standby waits
            journal.close()
        return looks[-1]

    with monkeypatch.context() as patch:
        patch.setattr(run, "is_held", look)
        code, said = invoke("resume", run_dir, "--standby")
    assert looks == [True, True, False]
    assert (code, '"b" is the best' in said) == (0, True), said
