from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.run_fixtures import write
from wallflower.engines import registry as engines
from wallflower.engines.registry import EngineJob, EngineSpec
from wallflower.engines.run import start_run
from wallflower.protocol.errors import UnavailableError


async def absent_server(job: EngineJob) -> None:
    """An engine whose server wrote its journal where the launcher cannot see it."""


ABSENT = EngineSpec(absent_server)


def test_a_run_whose_journal_stays_unfinished_is_not_called_a_success(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(engines.ENGINES, "local", f"{__name__}:ABSENT")
    with pytest.raises(UnavailableError, match="is not finished") as caught:
        start_run(write(tmp_path), "local", tmp_path / "run")
    assert "wallflower resume" in str(caught.value)
