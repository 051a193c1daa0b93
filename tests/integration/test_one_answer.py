"""A server that asks twice, hoping for two sums that differ by one person.

Enrolled nodes, a threat that includes a lying server. Members of a sealed sum are asked
twice in `test_sealed_attacks`.
"""

from __future__ import annotations

from fractions import Fraction
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
from tests.support.secure_sums import forged
from wallflower.keys.store import KeyStore
from wallflower.protocol.secure_sum.standing import standing_of
from wallflower.protocol.wire import secure_sum_pb2 as wire

VICTIM = NAMES[3]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> KeyStore:
    return key_store(tmp_path_factory.mktemp("keys") / "store")


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_node_never_confirms_a_second_set_of_survivors(
    transport: str, store: KeyStore, tmp_path: Path
) -> None:
    parties = NAMES[:8]
    homes = furnish(store, tmp_path, parties)
    trust = homes[VICTIM].trust()
    assert trust is not None
    async with reach(transport, homes, store) as reached:
        server = liar(
            "secagg-plus", trust, reached, parties=parties, dropout=Fraction(3, 10)
        )
        body = (await server.until("confirm")).messages[parties[0]]

        def leave_out(request: wire.ConfirmRequest) -> None:
            left = {party: 1 for party in parties if party != VICTIM}
            request.survivors.CopyFrom(standing_of(left, listed=True))

        assert await server.ask(parties[0], body)
        other = forged(body, wire.ConfirmRequest, leave_out)
        assert not await server.ask(parties[0], other)
        # That refusal ended the session; the server begins the cohort anew.
        assert not await server.ask(parties[0], other)
