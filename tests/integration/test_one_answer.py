"""A server that asks twice, hoping for two sums that differ by one person.

Twenty enrolled nodes, a threat that includes a lying server (t = 12). The server runs
an honest cohort, closes it, and asks the same members for the sum without its victim.
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
from wallflower.protocol.secure_sum.committee_seals import SEAL_BYTES
from wallflower.protocol.secure_sum.seals import SALT_BYTES
from wallflower.protocol.secure_sum.session import Ask
from wallflower.protocol.secure_sum.standing import standing_of
from wallflower.protocol.wire import secure_sum_pb2 as wire

VICTIM = NAMES[3]
CONTRIBUTORS = NAMES[:15]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> KeyStore:
    return key_store(tmp_path_factory.mktemp("keys") / "store")


def without_victim(body: bytes) -> bytes:
    """Rewrite a tally request: the same set, less one person."""

    def leave_out(request: wire.TallyRequest) -> None:
        closed = wire.ClosedSet.FromString(request.closed)
        at = list(closed.contributors).index(VICTIM)
        del closed.contributors[at], closed.keys[at], closed.users[at]
        closed.salts = _cut(closed.salts, at, SALT_BYTES)
        request.closed = closed.SerializeToString()
        request.sealed = _cut(request.sealed, at, SEAL_BYTES)

    return forged(body, wire.TallyRequest, leave_out)


def _cut(joined: bytes, at: int, size: int) -> bytes:
    return joined[: at * size] + joined[(at + 1) * size :]


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_member_never_tallies_a_second_set_of_the_same_cohort(
    transport: str, store: KeyStore, tmp_path: Path
) -> None:
    """Members whose value is in no sum have spent nothing; they answer once as well.

    Fifteen contribute. The other five are asked for the sum of the fifteen and, after
    the server closed the cohort, for the sum without the victim; each contributor is
    asked for one of the two. Five that answer twice make it 12 and 13 of t = 12.
    """
    homes = furnish(store, tmp_path)
    trust = homes[VICTIM].trust()
    assert trust is not None
    async with reach(transport, homes, store) as reached:
        server = liar("committee", trust, reached, dropout=Fraction(3, 10))
        contribute = await server.until("contribute")
        few = {party: contribute.messages[party] for party in CONTRIBUTORS}
        tally = await server.carry_out(Ask("contribute", few))
        assert isinstance(tally, Ask)
        idle = NAMES[len(CONTRIBUTORS) :]
        whole = [*idle, *CONTRIBUTORS[:7]]
        less = [*idle, *CONTRIBUTORS[7:]]
        for party in whole:
            assert await server.ask(party, tally.messages[party])
        await server.close(idle)
        again = {
            party: await server.ask(party, without_victim(tally.messages[party]))
            for party in less
        }
        assert {party for party in less if again[party]} == set(CONTRIBUTORS[7:])


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
