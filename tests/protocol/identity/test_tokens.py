from __future__ import annotations

import grpc
import pytest

from wallflower.protocol.errors import AuthenticationError, InputError
from wallflower.protocol.identity.tokens import (
    FINAL,
    STATUS,
    RunToken,
    RunTokens,
    check_token_proof,
    token_proof,
    transcript,
)
from wallflower.protocol.wire import node_service_pb2

HELLO = node_service_pb2.Hello(
    version=1,
    run_id="run-1",
    node_id="clinic-7",
    public_key=bytes(range(32)),
    certificate=b"\x0a\x01c",
    nonce=b"n" * 32,
    token_expiry=1_800_000_000,
    instance=b"i" * 16,
)
CHALLENGE = node_service_pb2.Challenge(nonce=b"d" * 32, server_fingerprint=b"f" * 32)


def test_golden_bytes_of_a_hello() -> None:
    handshake = node_service_pb2.Handshake(hello=HELLO, token_proof=b"m" * 32)
    body = handshake.SerializeToString(deterministic=True)
    golden = [
        "0a740801120572756e2d311a08636c696e69632d37",
        "2220000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f",
        "2a030a0163",
        "3220" + "6e" * 32,
        "3880a4a7da06",
        "4210" + "69" * 16,
        "1220" + "6d" * 32,
    ]
    assert body.hex() == "".join(golden)


@pytest.mark.parametrize(
    ("frame", "golden"),
    [
        (
            node_service_pb2.FromNode(
                answer={"request_id": "c1/tally", "body": b"\x01"}
            ),
            "120d0a0863312f74616c6c79120101",
        ),
        (
            node_service_pb2.FromNode(
                answer={"request_id": "r", "failure": "abandoned"}
            ),
            "120e0a01721a096162616e646f6e6564",
        ),
        (node_service_pb2.FromNode(heartbeat={"number": 5}), "1a020805"),
        (
            node_service_pb2.FromServer(request={"request_id": "r", "body": b"\x02"}),
            "1a060a0172120102",
        ),
        (node_service_pb2.FromServer(abandon={"request_id": "r"}), "22030a0172"),
        (node_service_pb2.FromServer(heartbeat={"number": 5}), "2a020805"),
        (
            node_service_pb2.FromServer(run_over={"reason": "finished"}),
            "320a0a0866696e6973686564",
        ),
    ],
)
def test_golden_bytes_of_frames(
    frame: node_service_pb2.FromNode | node_service_pb2.FromServer, golden: str
) -> None:
    assert frame.SerializeToString(deterministic=True).hex() == golden


@pytest.mark.parametrize(
    "field",
    [
        "version",
        "run_id",
        "node_id",
        "public_key",
        "certificate",
        "nonce",
        "token_expiry",
        "instance",
    ],
)
def test_every_word_of_a_hello_is_under_the_signature(field: str) -> None:
    other = node_service_pb2.Hello()
    other.CopyFrom(HELLO)
    value = getattr(other, field)
    more = {int: 1, str: "x", bytes: b"x"}[type(value)]
    setattr(other, field, value + more)
    assert transcript(other, CHALLENGE) != transcript(HELLO, CHALLENGE)


@pytest.mark.parametrize("field", ["nonce", "server_fingerprint"])
def test_the_server_nonce_and_certificate_are_under_the_signature(field: str) -> None:
    other = node_service_pb2.Challenge()
    other.CopyFrom(CHALLENGE)
    setattr(other, field, b"x" * 32)
    assert transcript(HELLO, other) != transcript(HELLO, CHALLENGE)


def test_a_token_depends_on_run_node_expiry_and_secret() -> None:
    tokens = {
        RunTokens(run, secret).issue(node, expiry=expiry).key
        for run in ("run-1", "run-2")
        for secret in (b"s" * 32, b"t" * 32)
        for node in ("a", "b")
        for expiry in (1, 2)
    }
    assert len(tokens) == 16


def test_the_two_sides_proofs_cannot_be_swapped() -> None:
    token = RunToken(1, b"k" * 32)
    proof = token_proof(token, "server", b"said")
    check_token_proof(token, "server", b"said", proof)
    with pytest.raises(AuthenticationError):
        check_token_proof(token, "node", b"said", proof)
    with pytest.raises(AuthenticationError):
        check_token_proof(RunToken(1, b"l" * 32), "server", b"said", proof)


def test_a_secret_of_the_wrong_length_is_refused() -> None:
    with pytest.raises(InputError, match="32 bytes"):
        RunTokens("run-1", b"short")
    assert len(RunTokens.new_secret()) == 32


def test_every_reason_has_a_status_that_grpc_knows() -> None:
    for status in STATUS.values():
        assert status in grpc.StatusCode.__members__


def test_a_node_comes_back_after_what_may_pass_only() -> None:
    assert {"revoked", "wrong-run", "superseded", "signature-invalid"} <= FINAL
    assert not {"too-many-streams", "server-closing", "heartbeat-lost"} & FINAL
