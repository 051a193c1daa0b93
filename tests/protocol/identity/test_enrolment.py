from __future__ import annotations

from pathlib import Path

import pytest

from wallflower.protocol.errors import (
    AuthenticationError,
    InputError,
    MalformedMessageError,
)
from wallflower.protocol.files.watched import RevokedSerials
from wallflower.protocol.identity.enrolment import (
    Certificate,
    EnrolmentKey,
    NodeIdentity,
    Trust,
    trust_label,
    verify_signature,
)

NOW = 1_800_000_000
KEY = EnrolmentKey.from_private_bytes(b"\x07" * 32)
NODE = NodeIdentity.from_private_bytes("node-1", b"\x01" * 32)


def certificate(**changes: int) -> Certificate:
    fields = {"not_after": NOW + 10, "capacity": 3, "serial": 99} | changes
    return KEY.issue("node-1", NODE.public_key, **fields)


def test_a_certificate_of_the_enrolment_key_is_believed() -> None:
    body = certificate().to_bytes()
    found = Trust(KEY.public_key, lambda: NOW).verify("node-1", body)
    assert found == certificate()
    assert found.capacity == 3


@pytest.mark.parametrize(
    ("trust", "why"),
    [
        (Trust(KEY.public_key, lambda: NOW + 11), "expired"),
        (Trust(KEY.public_key, lambda: NOW, frozenset({99})), "revoked"),
        (
            Trust(EnrolmentKey.generate().public_key, lambda: NOW),
            "not signed by the enrolment",
        ),
    ],
)
def test_expired_revoked_and_foreign_certificates_are_refused(
    trust: Trust, why: str
) -> None:
    with pytest.raises(AuthenticationError, match=why):
        trust.verify("node-1", certificate().to_bytes())


def test_one_trust_sees_a_certificate_expire_while_it_is_in_use() -> None:
    now = NOW
    trust = Trust(KEY.public_key, lambda: now)
    trust.verify("node-1", certificate().to_bytes())
    now += 11
    with pytest.raises(AuthenticationError, match="expired"):
        trust.verify("node-1", certificate().to_bytes())


def test_one_trust_sees_a_serial_revoked_while_it_is_in_use(tmp_path: Path) -> None:
    path = tmp_path / "revoked.txt"
    trust = Trust(KEY.public_key, lambda: NOW, RevokedSerials(path))
    trust.verify("node-1", certificate().to_bytes())
    path.write_text("99  # lost\n")
    with pytest.raises(AuthenticationError, match="revoked"):
        trust.verify("node-1", certificate().to_bytes())


def test_nobody_is_believed_while_the_revoked_serials_cannot_be_read(
    tmp_path: Path,
) -> None:
    path = tmp_path / "revoked.txt"
    path.write_text("5\n")
    trust = Trust(KEY.public_key, lambda: NOW, RevokedSerials(path))
    trust.verify("node-1", certificate().to_bytes())
    path.unlink()
    with pytest.raises(AuthenticationError, match="cannot be read"):
        trust.verify("node-1", certificate().to_bytes())
    path.write_text("five\n")
    with pytest.raises(AuthenticationError, match="cannot be read"):
        trust.verify("node-1", certificate().to_bytes())


def test_a_certificate_shown_for_another_node_is_refused() -> None:
    trust = Trust(KEY.public_key, lambda: NOW)
    trust.verify("node-1", certificate().to_bytes())
    with pytest.raises(AuthenticationError, match="was shown for node-2"):
        trust.verify("node-2", certificate().to_bytes())


@pytest.mark.parametrize("field", ["node_id", "serial", "not_after", "capacity"])
def test_an_altered_field_breaks_the_certificate(field: str) -> None:
    good = certificate()
    values = {
        "node_id": good.node_id,
        "public_key": good.public_key,
        "serial": good.serial,
        "not_after": good.not_after,
        "capacity": good.capacity,
        "signature": good.signature,
    }
    changed = "node-2" if field == "node_id" else getattr(good, field) + 1
    forged = Certificate(**{**values, field: changed})  # type: ignore[arg-type]
    with pytest.raises(AuthenticationError):
        Trust(KEY.public_key, lambda: NOW).verify(forged.node_id, forged.to_bytes())


@pytest.mark.parametrize("body", [b"", b"\xff", b"x" * 2000, b"\x0a\x01a"])
def test_garbage_is_no_certificate(body: bytes) -> None:
    with pytest.raises(MalformedMessageError):
        Certificate.from_bytes(body)


def test_certificate_bytes_are_golden() -> None:
    assert certificate().to_bytes().hex() == (
        "0a066e6f64652d3112208a88e3dd7409f195fd52db2d3cba5d72ca6709bf1d94121b"
        "f3748801b40f6f5c1863208aa4a7da0628033240cc72e3e656d144277ca98c2bc414"
        "4cb9d74491ec87da1ee510ed6306cc37bbf950371a1d0953e85e7f14b0f6b1572cd2"
        "2497cca97736c3b793051e359d5a1a04"
    )


def test_identities_sign_and_others_can_check() -> None:
    identity = NODE.enrolled(certificate())
    signature = identity.sign(b"text")
    verify_signature(identity.public_key, signature, b"text")
    with pytest.raises(AuthenticationError):
        verify_signature(identity.public_key, signature, b"other text")


def test_a_certificate_of_another_key_is_not_taken() -> None:
    other = NodeIdentity.generate("node-1")
    with pytest.raises(InputError, match="certificate"):
        other.enrolled(certificate())


def test_keys_come_back_from_their_bytes_and_stay_out_of_repr() -> None:
    again = NodeIdentity.from_private_bytes("node-1", NODE.private_bytes())
    assert again.public_key == NODE.public_key
    assert NODE.private_bytes().hex() not in repr(NODE)
    assert KEY.private_bytes().hex() not in repr(KEY)
    with pytest.raises(InputError, match="private key"):
        NodeIdentity.from_private_bytes("node-1", b"short")


def test_without_an_enrolment_key_the_label_says_semi_honest_server() -> None:
    bare = trust_label(enrolled=False, malicious_server=False)
    assert bare.startswith("semi-honest server")
    assert "semi-honest server" in trust_label(enrolled=True, malicious_server=False)
    assert "malicious" in trust_label(enrolled=True, malicious_server=True)


def test_other_encodings_of_a_certificate_are_remembered_once() -> None:
    trust = Trust(KEY.public_key, lambda: NOW)
    body = certificate().to_bytes()
    for number in range(100):
        unknown = bytes([0x7A, 2, *number.to_bytes(2)])  # field 15, which nobody reads
        assert trust.verify("node-1", body + unknown) == certificate()
    assert trust.remembered == 1


def test_no_more_certificates_are_remembered_than_the_bound() -> None:
    trust = Trust(KEY.public_key, lambda: NOW, most_remembered=3)
    shown = [certificate(serial=serial) for serial in range(100, 110)]
    for one in (*shown, *shown):
        assert trust.verify("node-1", one.to_bytes()) == one
    assert trust.remembered == 3
