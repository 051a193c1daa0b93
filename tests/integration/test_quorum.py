"""A server that names more people than it sums, so that the noise looks enough."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.lying_operator import (
    NAMES,
    TRANSPORTS,
    furnish,
    key_store,
    liar,
    reach,
)
from wallflower.protocol.secure_sum.secagg_plus import summarize_survivors
from wallflower.protocol.secure_sum.session import Ask, Step, Void
from wallflower.strategy.secure_sum.secagg_plus import SecaggPlusServer


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_no_sum_over_12_is_unmasked_by_a_list_of_20_and_a_quorum_of_18(
    transport: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = key_store(tmp_path / "keys")
    homes = furnish(store, tmp_path / "homes")
    trust = homes[NAMES[0]].trust()
    assert trust is not None
    async with reach(transport, homes, store) as reached:
        server = liar("secagg-plus", trust, reached)
        assert server.spec.quorum == 18
        assert isinstance(server.session, SecaggPlusServer)
        everyone = summarize_survivors(dict.fromkeys(NAMES, 1), listed=True)
        monkeypatch.setattr(server.session, "_short", lambda *_: None)
        monkeypatch.setattr(server.session, "survivor_set", lambda parties: everyone)
        share = await server.until("share")
        few = {party: share.messages[party] for party in NAMES[:12]}
        step: Step = await server.carry_out(Ask("share", few))
        while isinstance(step, Ask):
            step = await server.carry_out(step)
        assert isinstance(step, Void), f"a sum over {len(NAMES[:12])} of quorum 18"
