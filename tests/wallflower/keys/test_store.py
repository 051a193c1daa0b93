from __future__ import annotations

import datetime
import ssl
import stat
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from wallflower.keys.store import KeyStore
from wallflower.protocol.errors import AuthenticationError, ConfigError, InputError
from wallflower.protocol.files.keyfiles import (
    read_identity,
    read_revoked,
    read_seed,
    read_trust,
)

NOW = datetime.datetime.now(datetime.UTC)


@pytest.fixture
def store(tmp_path: Path) -> KeyStore:
    made = KeyStore(tmp_path / "keys")
    made.create("Test consortium", ["10.77.0.1", "operator.example"], days=30)
    return made


def add(store: KeyStore, name: str, *, days: int = 30) -> Path:
    return store.add_node(name, capacity=500, days=days, now=NOW)


def test_the_operators_folder_never_holds_a_key_that_admits_nodes(
    store: KeyStore,
) -> None:
    add(store, "clinic-a")
    enrolment = read_seed(store.authority / "enrolment.key")
    authority = (store.authority / "ca.key").read_bytes()
    for path in [*store.operator.iterdir(), *(store.nodes / "clinic-a").iterdir()]:
        content = path.read_bytes()
        assert enrolment not in content
        assert authority not in content


def test_private_files_are_for_their_owner_alone(store: KeyStore) -> None:
    add(store, "clinic-a")
    private = [*store.root.rglob("*.key"), *store.root.rglob("*.secret")]
    assert len(private) == 6
    for path in private:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_node_gets_an_identity_that_the_enrolment_key_vouches_for(
    store: KeyStore,
) -> None:
    folder = add(store, "clinic-a")
    identity = read_identity(folder)
    trust = read_trust(folder, NOW.timestamp)
    assert identity.certificate is not None
    held = trust.verify("clinic-a", identity.certificate.to_bytes())
    assert (held.node_id, held.capacity) == ("clinic-a", 500)


def test_a_certificate_ends_when_it_says(store: KeyStore) -> None:
    folder = add(store, "clinic-a", days=10)
    certificate = read_identity(folder).certificate
    assert certificate is not None
    later = int((NOW + datetime.timedelta(days=11)).timestamp())
    with pytest.raises(AuthenticationError, match="expired"):
        read_trust(folder, lambda: later).verify("clinic-a", certificate.to_bytes())


def test_revocation_reaches_the_operator_and_every_node(store: KeyStore) -> None:
    first, second = add(store, "clinic-a"), add(store, "clinic-b")
    serial = store.revoke("clinic-b")
    for folder in (store.operator, first, second):
        assert read_revoked(folder / "revoked.txt") == {serial}
    certificate = read_identity(second).certificate
    assert certificate is not None
    with pytest.raises(AuthenticationError, match="revoked"):
        read_trust(first, lambda: 0).verify("clinic-b", certificate.to_bytes())


def test_the_server_gets_the_revoked_names(store: KeyStore) -> None:
    add(store, "clinic-a")
    store.revoke("clinic-a")
    lines = (store.operator / "revoked-nodes.txt").read_text().splitlines()
    assert lines == ["# names of revoked nodes", "clinic-a"]


def test_a_node_enrolled_later_learns_of_earlier_revocations(store: KeyStore) -> None:
    add(store, "clinic-a")
    serial = store.revoke("clinic-a")
    assert read_revoked(add(store, "clinic-b") / "revoked.txt") == {serial}


def test_the_server_certificate_names_every_address_and_loopback(
    store: KeyStore,
) -> None:
    pem = (store.operator / "server.crt").read_bytes()
    names = x509.load_pem_x509_certificate(pem).extensions.get_extension_for_class(
        x509.SubjectAlternativeName
    )
    shown = {str(name.value) for name in names.value}
    assert shown == {"10.77.0.1", "operator.example", "localhost", "127.0.0.1"}


def test_renewal_keeps_the_authority_so_that_nodes_need_nothing_new(
    store: KeyStore,
) -> None:
    before = (store.operator / "server.crt").read_bytes()
    store.issue_server(["10.77.0.1"], days=30)
    assert (store.operator / "server.crt").read_bytes() != before
    assert (store.operator / "server.crt.former").read_bytes() == before
    context = ssl.create_default_context(cafile=str(store.operator / "ca.crt"))
    context.load_cert_chain(
        store.operator / "server.crt", store.operator / "server.key"
    )


def test_flowers_key_is_ecdsa_p384_as_flower_demands(store: KeyStore) -> None:
    folder = add(store, "clinic-a")
    key = serialization.load_ssh_private_key((folder / "flower.key").read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    assert key.curve.name == "secp384r1"


def test_nothing_is_overwritten(store: KeyStore) -> None:
    add(store, "clinic-a")
    with pytest.raises(ConfigError, match="exists already"):
        add(store, "clinic-a")
    with pytest.raises(ConfigError, match="holds keys already"):
        store.create("again", ["a"], days=1)


@pytest.mark.parametrize("name", ["", "../x", "a/b", "-x", "x" * 61, "clinic a"])
def test_a_name_that_is_no_folder_name_is_refused(store: KeyStore, name: str) -> None:
    with pytest.raises(InputError, match="node name"):
        add(store, name)
