"""A lying server chooses among whom it has a key dealt: its two friends of twenty.

γ = 1/10, so that two colluders are what a cohort of twenty is said to withstand. They
alone deal a key, sign for it, and could open everybody's contribution.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.lying_operator import (
    NAMES,
    TRANSPORTS,
    dealing,
    furnish,
    key_store,
    liar,
    reach,
)
from wallflower.keys.store import KeyStore
from wallflower.protocol.accounting.account import NOTHING
from wallflower.protocol.secure_sum.session import KeyReady

COLLUDERS = NAMES[18:]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> KeyStore:
    return key_store(tmp_path_factory.mktemp("keys") / "store")


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_nobody_seals_under_a_key_that_the_colluders_dealt_each_other(
    transport: str, store: KeyStore, tmp_path: Path
) -> None:
    homes = furnish(store, tmp_path)
    trust = homes[NAMES[0]].trust()
    assert trust is not None
    async with reach(transport, homes, store) as reached:
        dealt = dealing(trust, reached, COLLUDERS)
        assert isinstance(await dealt.to_the_end(), KeyReady)
        cohort = liar("sealed", trust, reached, keyring=dealt.keyring)
        ask = await cohort.until("seal")
        for party in NAMES[:4]:
            assert not await cohort.ask(party, ask.messages[party])
    with homes[NAMES[0]].ledger() as ledger:  # no reward was taken for it
        assert await ledger.read_account(NAMES[0], "u0") == NOTHING
