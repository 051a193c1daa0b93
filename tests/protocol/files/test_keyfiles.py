from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wallflower.protocol.errors import ConfigError
from wallflower.protocol.files.keyfiles import (
    armour,
    private_key_pem,
    public_key_pem,
    read_certificate,
    read_identity,
    read_private,
    read_public,
    read_revoked,
    read_seed,
    write_private,
)
from wallflower.protocol.identity.enrolment import EnrolmentKey, NodeIdentity

ENROLMENT = EnrolmentKey.from_private_bytes(bytes(range(32)))
NODE = NodeIdentity.from_private_bytes("clinic-a", bytes(range(1, 33)))
CERTIFICATE = ENROLMENT.issue("clinic-a", NODE.public_key, not_after=2**40, capacity=9)


def test_an_identity_survives_its_files(tmp_path: Path) -> None:
    write_private(tmp_path / "identity.key", private_key_pem(NODE.private_bytes()))
    (tmp_path / "identity.certificate").write_bytes(armour(CERTIFICATE))
    read = read_identity(tmp_path)
    assert read.public_key == NODE.public_key
    assert read.certificate == CERTIFICATE


def test_a_public_key_survives_its_file(tmp_path: Path) -> None:
    (tmp_path / "enrolment.pub").write_bytes(public_key_pem(ENROLMENT.public_key))
    assert read_public(tmp_path / "enrolment.pub") == ENROLMENT.public_key


def test_a_key_that_is_not_there_is_not_called_garbled(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        read_public(tmp_path / "enrolment.pub")


def test_a_key_everybody_may_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "identity.key"
    write_private(path, private_key_pem(NODE.private_bytes()))
    path.chmod(0o644)
    with pytest.raises(ConfigError, match="readable by everybody"):
        read_private(path)


def test_a_key_is_never_overwritten(tmp_path: Path) -> None:
    write_private(tmp_path / "k", b"first")
    with pytest.raises(ConfigError, match="never overwritten"):
        write_private(tmp_path / "k", b"second")
    assert (tmp_path / "k").read_bytes() == b"first"


def test_an_identity_with_anothers_certificate_is_refused(tmp_path: Path) -> None:
    other = NodeIdentity.from_private_bytes("clinic-b", bytes(range(2, 34)))
    write_private(tmp_path / "identity.key", private_key_pem(other.private_bytes()))
    (tmp_path / "identity.certificate").write_bytes(armour(CERTIFICATE))
    with pytest.raises(ValueError, match="certificate"):
        read_identity(tmp_path)


@given(st.binary(max_size=400))
def test_garbage_is_refused_without_quoting_it(content: bytes) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file"
        write_private(path, content)
        for read in (read_certificate, read_seed, read_public):
            with pytest.raises(ConfigError) as caught:
                read(path)
            assert str(path) in str(caught.value)
            assert len(str(caught.value)) < len(str(path)) + 80


def test_revoked_serials_may_have_comments(tmp_path: Path) -> None:
    path = tmp_path / "revoked.txt"
    path.write_text("# none yet\n17  # clinic-b\n\n4\n")
    assert read_revoked(path) == {4, 17}
    assert read_revoked(tmp_path / "missing") == frozenset()


def test_a_broken_revocation_list_is_an_error_not_an_empty_one(tmp_path: Path) -> None:
    path = tmp_path / "revoked.txt"
    path.write_text("seventeen\n")
    with pytest.raises(ConfigError, match=r"revoked\.txt: expected a serial"):
        read_revoked(path)
