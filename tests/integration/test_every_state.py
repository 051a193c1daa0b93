"""A server that may do anything, in every state of every protocol, on every transport.

Six enrolled nodes. The server keeps to the protocol up to a stage and then turns on one
node: it repeats, alters, reorders, skips and closes. Whatever it does, an answer that
costs a reward or is given once has one wording, and no stage is answered early.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

from tests.integration.lying_operator import (
    NAMES,
    TRANSPORTS,
    Liar,
    Reach,
    dealing,
    furnish,
    key_store,
    liar,
    reach,
)
from wallflower.keys.store import KeyStore
from wallflower.protocol.identity.enrolment import Trust
from wallflower.protocol.secure_sum.backends import SEALED, SECAGG_PLUS, stages_of
from wallflower.protocol.secure_sum.context import unwrap, wrap
from wallflower.protocol.secure_sum.session import KeyReady

# Not traced: the same lines again and again, which others run too.
pytestmark = pytest.mark.no_cover

PARTIES = NAMES[:6]
VICTIM = PARTIES[0]
STATES = [
    *((SECAGG_PLUS, facts.name) for facts in stages_of(SECAGG_PLUS).values()),
    (SEALED, "seal"),
    (SEALED, "open"),
]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> KeyStore:
    return key_store(tmp_path_factory.mktemp("keys") / "store")


async def opened(backend: str, trust: Trust, reached: Reach) -> Liar:
    """A lying server's cohort; of a run that has its key where sums are sealed."""
    if backend != SEALED:
        return liar(backend, trust, reached, parties=PARTIES)
    dealt = dealing(trust, reached, PARTIES)
    assert isinstance(await dealt.to_the_end(), KeyReady)
    return liar(backend, trust, reached, parties=PARTIES, keyring=dealt.keyring)


def altered(body: bytes) -> bytes:
    """Return other bytes of the same meaning: a field that nobody knows."""
    envelope = unwrap(body)
    payload = envelope.payload + b"\xf8\x3f\x01"
    return wrap(envelope.stage, envelope.context, "", envelope.receiver, payload)


def at_stage(body: bytes, stage: int, payload: bytes) -> bytes:
    envelope = unwrap(body)
    return wrap(stage, envelope.context, "", envelope.receiver, payload)


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize(("backend", "stage"), STATES)
async def test_in_every_state_an_answer_has_one_wording_whatever_is_asked(
    backend: str, stage: str, transport: str, store: KeyStore, tmp_path: Path
) -> None:
    homes = furnish(store, tmp_path, PARTIES)
    trust = homes[VICTIM].trust()
    assert trust is not None
    async with reach(transport, homes, store) as reached:
        server = await opened(backend, trust, reached)
        body = (await server.until(stage)).messages[VICTIM]
        past = list(server.sent[VICTIM])
        for message in [body, body, altered(body), body]:
            await server.ask(VICTIM, message)
        for _ in range(2):  # as the cohort is, and after the server closed it
            for message in [*past, body]:
                await server.ask(VICTIM, altered(message))
                await server.ask(VICTIM, message)
            await server.close([VICTIM])
        wordings: dict[int, set[bytes]] = defaultdict(set)
        for answer in server.heard[VICTIM]:
            wordings[unwrap(answer).stage].add(answer)
        assert wordings[unwrap(body).stage]
        for facts in stages_of(backend).values():
            if facts.takes_reward or facts.given_once:
                assert len(wordings[facts.number]) <= 1, facts.name


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize(("backend", "stage"), STATES)
async def test_in_no_state_is_a_later_stage_answered(
    backend: str, stage: str, transport: str, store: KeyStore, tmp_path: Path
) -> None:
    homes = furnish(store, tmp_path, PARTIES)
    trust = homes[VICTIM].trust()
    assert trust is not None
    async with reach(transport, homes, store) as reached:
        server = await opened(backend, trust, reached)
        ask = await server.until(stage)
        body, number = ask.messages[VICTIM], unwrap(ask.messages[VICTIM]).stage
        later = [f.number for f in stages_of(backend).values() if f.number > number]
        for skipped in later:
            for payload in (unwrap(body).payload, b""):
                early = at_stage(body, skipped, payload)
                assert not await server.ask(VICTIM, early)
        # Another's message is nobody's to answer, at its own time or any other.
        other = next(
            message for party, message in ask.messages.items() if party != VICTIM
        )
        assert not await server.ask(VICTIM, other)
