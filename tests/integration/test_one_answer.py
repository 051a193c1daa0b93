"""A server that asks twice, hoping for two sums that differ by one person.

Enrolled nodes, a threat that includes a lying server. Members of a sealed sum who are
in it themselves are asked twice in `test_sealed_attacks`.
"""

from __future__ import annotations

from fractions import Fraction
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
from tests.support.secure_sums import forged
from wallflower.keys.store import KeyStore
from wallflower.protocol.secure_sum.sealed.group import Point, total
from wallflower.protocol.secure_sum.secagg_plus import summarize_survivors
from wallflower.protocol.secure_sum.session import KeyReady
from wallflower.protocol.wire import secure_sum_pb2 as wire
from wallflower.protocol.wire.sealed_pb2 import OpenRequest

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
            request.survivors.CopyFrom(summarize_survivors(left, listed=True))

        assert await server.ask(parties[0], body)
        other = forged(body, wire.ConfirmRequest, leave_out)
        assert not await server.ask(parties[0], other)
        # That refusal ended the session; the server begins the cohort anew.
        assert not await server.ask(parties[0], other)


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_member_with_nobody_in_the_sum_never_opens_a_second_set(
    transport: str, store: KeyStore, tmp_path: Path
) -> None:
    """No spend of its own stands in the way, also in a process of its own."""
    member, parties, dropout = NAMES[8], NAMES[:8], Fraction(3, 10)
    homes = furnish(store, tmp_path, NAMES[:9])
    trust = homes[VICTIM].trust()
    assert trust is not None

    def leave_out(request: OpenRequest) -> None:
        at = list(request.senders).index(VICTIM)
        del request.senders[at], request.sealed[at]
        request.contributors -= 1
        request.users -= 1
        request.sum = bytes(total([Point.parse(one.one) for one in request.sealed]))

    async with reach(transport, homes, store) as reached:
        dealt = dealing(trust, reached, NAMES[:9], dropout=dropout)
        assert isinstance(await dealt.to_the_end(), KeyReady)
        server = liar(
            "sealed",
            trust,
            reached,
            parties=parties,
            dropout=dropout,
            keyring=dealt.keyring,
        )
        whole = (await server.until("open")).messages[member]
        less = forged(whole, OpenRequest, leave_out)
        assert await server.ask(member, whole)
        assert not await server.ask(member, less)
        assert not await server.ask(member, less)
        await server.close([member])
        assert not await server.ask(member, less)
