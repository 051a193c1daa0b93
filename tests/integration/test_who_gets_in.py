"""Who gets in, with the files that ``wallflower keys`` makes and the logs as shipped.

`tests/strategy/transport/grpc/test_admission.py` attacks the handshake message by
message; here the whole chain stands: key folders, a real gRPC server on TLS, a real
node, JSON logs.
"""

from __future__ import annotations

import datetime
import io
import json
import logging
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.transport_contract import Echo
from wallflower.clients.transport.grpc_client import (
    ConnectionSettings,
    Invitation,
    connect_node,
)
from wallflower.keys.store import KeyStore
from wallflower.protocol.errors import AuthenticationError, ProtocolError
from wallflower.protocol.files.keyfiles import (
    read_identity,
    read_public,
    read_revoked,
    read_seed,
)
from wallflower.protocol.files.logs import JsonFormatter
from wallflower.protocol.identity.certificates import KeyPair
from wallflower.protocol.identity.enrolment import NodeIdentity
from wallflower.protocol.identity.tokens import RunToken, RunTokens
from wallflower.strategy.transport.grpc.admission import (
    Admission,
    EnrolledKeys,
    RevokedNodes,
)
from wallflower.strategy.transport.grpc.server import GrpcServer

RUN = "run-1"
NOW = datetime.datetime.now(datetime.UTC)
QUICK = ConnectionSettings(first_wait_s=0.01, longest_wait_s=0.05, patience_s=60)


@dataclass
class Site:
    store: KeyStore
    tokens: RunTokens
    grpc_server: GrpcServer
    port: int
    logs: io.StringIO

    def invitation(self, name: str, token: RunToken | None = None) -> Invitation:
        expiry = int(time.time()) + 3600
        return Invitation(
            f"127.0.0.1:{self.port}",
            (self.store.operator / "ca.crt").read_bytes(),
            RUN,
            token or self.tokens.issue(name, expiry=expiry),
        )

    async def turned_away(self, invitation: Invitation, identity: NodeIdentity) -> None:
        with pytest.raises(AuthenticationError):
            await connect_node(invitation, identity, Echo("x"), settings=QUICK)

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.logs.getvalue().splitlines()]


@pytest.fixture
def logs() -> Iterator[io.StringIO]:
    sink = io.StringIO()
    handler = logging.StreamHandler(sink)
    handler.setFormatter(JsonFormatter())
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    yield sink
    root.removeHandler(handler)
    root.setLevel(level)


def make_store(folder: Path) -> KeyStore:
    store = KeyStore(folder)
    store.create("Test", ["127.0.0.1"], days=30)
    for name in ("clinic-a", "clinic-b"):
        store.add_node(name, capacity=100, days=30, now=NOW)
    return store


@pytest.fixture
async def site(tmp_path: Path, logs: io.StringIO) -> AsyncIterator[Site]:
    store = make_store(tmp_path / "keys")
    tokens = RunTokens(RUN, RunTokens.new_secret())
    rule = EnrolledKeys(
        read_public(store.operator / "enrolment.pub"),
        read_revoked(store.operator / "revoked.txt"),
    )
    revoked = RevokedNodes(store.operator / "revoked-nodes.txt")
    server = KeyPair(
        (store.operator / "server.crt").read_bytes(),
        (store.operator / "server.key").read_bytes(),
    )
    grpc_server = GrpcServer(Admission(tokens, rule, revoked), server)
    port = await grpc_server.open("127.0.0.1:0")
    yield Site(store, tokens, grpc_server, port, logs)
    await grpc_server.close("finished")
    assert_no_secret(logs.getvalue(), store, tokens)


def assert_no_secret(output: str, store: KeyStore, tokens: RunTokens) -> None:
    """Every test ends here: whatever happened, no secret was written down."""
    for path in store.nodes.glob("*/identity.key"):
        seed = read_seed(path)
        assert seed.hex() not in output
        assert path.read_text().splitlines()[1] not in output
    for name in ("clinic-a", "clinic-b"):
        expiry = int(time.time()) + 3600
        for moment in range(expiry - 60, expiry + 1):
            assert tokens.issue(name, expiry=moment).key.hex() not in output


async def test_a_node_with_its_own_keys_gets_in(site: Site) -> None:
    import asyncio

    node = asyncio.create_task(
        connect_node(
            site.invitation("clinic-a"),
            read_identity(site.store.nodes / "clinic-a"),
            Echo("clinic-a"),
            settings=QUICK,
        )
    )
    assert not await site.grpc_server.wait_for(["clinic-a"], timeout_s=30)
    await site.grpc_server.close("finished")
    assert await node == "finished"


async def test_a_key_of_another_consortium_is_unknown(
    site: Site, tmp_path: Path
) -> None:
    other = make_store(tmp_path / "other")
    identity = read_identity(other.nodes / "clinic-a")
    await site.turned_away(site.invitation("clinic-a"), identity)
    assert site.grpc_server.stats.refused == {"unknown-key": 1}


async def test_revoking_shuts_a_node_out_without_a_restart(site: Site) -> None:
    site.store.revoke("clinic-b")
    identity = read_identity(site.store.nodes / "clinic-b")
    await site.turned_away(site.invitation("clinic-b"), identity)
    assert site.grpc_server.stats.refused == {"revoked": 1}


async def test_an_expired_enrolment_is_refused(site: Site) -> None:
    past = NOW - datetime.timedelta(days=40)
    folder = site.store.add_node("clinic-c", capacity=1, days=30, now=past)
    await site.turned_away(site.invitation("clinic-c"), read_identity(folder))
    assert site.grpc_server.stats.refused == {"certificate-expired": 1}


async def test_anothers_token_does_not_fit(site: Site) -> None:
    token = site.tokens.issue("clinic-a", expiry=int(time.time()) + 3600)
    identity = read_identity(site.store.nodes / "clinic-b")
    # The gRPC server's own proof is made with the right token, so the node sees it
    # first.
    with pytest.raises(ProtocolError):
        await connect_node(
            site.invitation("clinic-b", token), identity, Echo("x"), settings=QUICK
        )
    assert site.grpc_server.stats.connections == 0


async def test_an_old_token_is_expired(site: Site) -> None:
    token = site.tokens.issue("clinic-a", expiry=int(time.time()) - 1)
    identity = read_identity(site.store.nodes / "clinic-a")
    await site.turned_away(site.invitation("clinic-a", token), identity)
    assert site.grpc_server.stats.refused == {"token-expired": 1}


async def test_a_node_cannot_speak_in_anothers_name(site: Site) -> None:
    """Users are known as node/pseudonym: who has no other name has no other users."""
    mine = read_identity(site.store.nodes / "clinic-b")
    liar = NodeIdentity.from_private_bytes("clinic-a", mine.private_bytes())
    certificate = mine.certificate
    assert certificate is not None
    object.__setattr__(liar, "certificate", certificate)
    await site.turned_away(site.invitation("clinic-a"), liar)
    assert site.grpc_server.stats.refused == {"not-your-name": 1}


async def test_a_grpc_server_of_another_authority_is_not_spoken_to(
    site: Site, tmp_path: Path
) -> None:
    other = make_store(tmp_path / "other")
    wrong = Invitation(
        f"127.0.0.1:{site.port}",
        (other.operator / "ca.crt").read_bytes(),
        RUN,
        site.tokens.issue("clinic-a", expiry=int(time.time()) + 3600),
    )
    await site.turned_away(wrong, read_identity(site.store.nodes / "clinic-a"))
    assert site.grpc_server.stats.connections == 0


async def test_a_grpc_server_with_an_expired_certificate_is_not_spoken_to(
    tmp_path: Path,
) -> None:
    store = make_store(tmp_path / "keys")
    past = NOW - datetime.timedelta(days=60)
    store.issue_server(["127.0.0.1"], days=30, now=past)
    server = KeyPair(
        (store.operator / "server.crt").read_bytes(),
        (store.operator / "server.key").read_bytes(),
    )
    tokens = RunTokens(RUN, RunTokens.new_secret())
    rule = EnrolledKeys(read_public(store.operator / "enrolment.pub"))
    grpc_server = GrpcServer(Admission(tokens, rule), server)
    port = await grpc_server.open("127.0.0.1:0")
    try:
        site = Site(store, tokens, grpc_server, port, io.StringIO())
        identity = read_identity(store.nodes / "clinic-a")
        await site.turned_away(site.invitation("clinic-a"), identity)
        assert grpc_server.stats.connections == 0
    finally:
        await grpc_server.close("finished")


async def test_refusals_are_logged_with_run_and_reason(site: Site) -> None:
    site.store.revoke("clinic-b")
    identity = read_identity(site.store.nodes / "clinic-b")
    await site.turned_away(site.invitation("clinic-b"), identity)
    [refusal] = [line for line in site.lines() if line["event"] == "refused"]
    assert refusal["level"] == "warning"
    assert (refusal["run_id"], refusal["reason"]) == (RUN, "revoked")
