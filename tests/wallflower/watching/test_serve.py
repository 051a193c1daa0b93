"""Where the live page may listen, and what it asks for there."""

from __future__ import annotations

import datetime
import socket
import stat
from pathlib import Path

import pytest

from tests.wallflower.test_run_commands import invoke
from wallflower.protocol.errors import ConfigError, InputError, UnavailableError
from wallflower.protocol.identity.certificates import (
    make_authority,
    make_server_certificate,
)
from wallflower.watching.serve import (
    Place,
    allowed_names,
    check,
    is_loopback,
    listening,
    token_of,
)

NOW = datetime.datetime.now(datetime.UTC)


def pair(
    folder: Path, *hosts: str, now: datetime.datetime = NOW, name: str = "tls"
) -> tuple[Path, Path]:
    made = make_server_certificate(
        make_authority("test", now=now, days=3), hosts, now=now, days=3
    )
    certificate, key = folder / f"{name}.crt", folder / f"{name}.key"
    certificate.write_bytes(made.certificate)
    key.write_bytes(made.private_key)
    return certificate, key


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7"])
@pytest.mark.parametrize("given", [(), ("tls",), ("token",)])
def test_elsewhere_than_loopback_tls_and_a_token_are_both_needed(
    host: str, given: tuple[str, ...], tmp_path: Path
) -> None:
    certificate, key = pair(tmp_path, "page.example")
    place = Place(
        host,
        certificate=certificate if "tls" in given else None,
        private_key=key if "tls" in given else None,
        token_file=tmp_path / "token" if "token" in given else None,
    )
    with pytest.raises(InputError, match="TLS and a token"):
        check(place)


def test_the_command_refuses_before_anything_listens(tmp_path: Path) -> None:
    code, said = invoke("watch", tmp_path, "--host", "0.0.0.0")
    assert code == 2
    assert "without --certificate and --private-key and without --token-file" in said


def test_elsewhere_with_tls_and_a_token_is_allowed(tmp_path: Path) -> None:
    certificate, key = pair(tmp_path, "page.example")
    check(Place("0.0.0.0", None, certificate, key, tmp_path / "token"))


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
def test_loopback_needs_nothing(host: str) -> None:
    assert is_loopback(host)
    check(Place(host))


def test_a_name_that_also_means_another_address_is_not_loopback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = [(2, 1, 6, "", (address, 0)) for address in ("127.0.0.1", "192.0.2.7")]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    assert not is_loopback("both.example")


def test_a_key_of_another_certificate_is_refused(tmp_path: Path) -> None:
    certificate, _ = pair(tmp_path, "a.example")
    _, key = pair(tmp_path, "a.example", name="other")
    with pytest.raises(InputError, match="its key"):
        check(Place(certificate=certificate, private_key=key))


def test_an_expired_certificate_is_refused(tmp_path: Path) -> None:
    old = NOW - datetime.timedelta(days=30)
    certificate, key = pair(tmp_path, "a.example", now=old)
    with pytest.raises(InputError, match="expired"):
        check(Place(certificate=certificate, private_key=key))


def test_half_a_pair_is_refused(tmp_path: Path) -> None:
    certificate, _ = pair(tmp_path, "a.example")
    with pytest.raises(InputError, match="together"):
        check(Place(certificate=certificate))


def test_elsewhere_the_page_answers_to_the_names_of_its_certificate(
    tmp_path: Path,
) -> None:
    certificate, key = pair(tmp_path, "page.example", "192.0.2.7")
    names = allowed_names(Place("0.0.0.0", None, certificate, key, tmp_path / "t"))
    asked = ("page.example", "192.0.2.7", "evil.example", "127.0.0.1", "", "é")
    assert [names(name) for name in asked] == [True, True, *[False] * 4]


def test_a_token_is_made_once_for_this_account_alone(tmp_path: Path) -> None:
    path = tmp_path / "token"
    first = token_of(path)
    assert len(first) >= 32
    assert token_of(path) == first
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_token_that_could_be_guessed_is_refused_without_being_told(
    tmp_path: Path,
) -> None:
    path = tmp_path / "token"
    path.write_text("hunter2\n")
    path.chmod(0o600)
    with pytest.raises(InputError, match="7 characters") as refused:
        token_of(path)
    assert "hunter2" not in str(refused.value)


def test_a_token_that_everybody_may_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("x" * 40)
    path.chmod(0o644)
    with pytest.raises(ConfigError, match="readable by everybody"):
        token_of(path)


def test_a_wished_port_that_is_taken_is_refused_and_the_usual_one_gives_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        with pytest.raises(UnavailableError, match=f"127.0.0.1:{taken} "):
            listening(Place(port=taken))
        monkeypatch.setattr("wallflower.watching.serve.DEFAULT_PORT", taken)
        with listening(Place()) as opened:
            assert opened.getsockname()[1] != taken
