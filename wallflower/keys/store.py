"""The keys of a consortium, sorted by who may hold them.

::

    authority/   ca.key, enrolment.key         stays offline; the server never sees it
    operator/    ca.crt, server.crt, server.key, superexec.secret, enrolment.pub,
                 revoked.txt, revoked-nodes.txt    the operator's host
    nodes/NAME/  ca.crt, flower.key, flower.pub, identity.key, identity.certificate,
                 enrolment.pub, revoked.txt    that node's host, by a safe way

Who holds ``enrolment.key`` decides who is a node: were it on the server, a lying server
could invent nodes and undercut the secure sums.
"""

from __future__ import annotations

import datetime
import re
import secrets
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from wallflower.protocol.errors import ConfigError, InputError, UnavailableError
from wallflower.protocol.files.keyfiles import (
    AUTHORITY_CERTIFICATE,
    ENROLMENT_PUBLIC,
    IDENTITY_CERTIFICATE,
    IDENTITY_KEY,
    REVOKED,
    REVOKED_NODES,
    armour,
    private_key_pem,
    public_key_pem,
    read_certificate,
    read_private,
    read_revoked,
    read_seed,
    write_private,
)
from wallflower.protocol.files.private import private_directory
from wallflower.protocol.identity.certificates import (
    KeyPair,
    check_host,
    make_authority,
    make_server_certificate,
)
from wallflower.protocol.identity.enrolment import EnrolmentKey, NodeIdentity
from wallflower.protocol.visitors import Invitation

_LONGEST_TITLE = 64  # of a certificate's subject
_NAME = "letters, digits, - and _, at most 60 characters"


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """What `wallflower keys list` shows of a node."""

    name: str
    serial: int
    expires: datetime.datetime
    capacity: int
    revoked: bool


class KeyStore:
    """A folder of keys; every step refuses to overwrite what exists."""

    def __init__(self, root: Path) -> None:
        self.authority = root / "authority"
        self.operator = root / "operator"
        self.nodes = root / "nodes"
        self.root = root
        self._folders = (self.authority, self.operator, self.nodes)

    def create(self, name: str, addresses: Sequence[str], *, days: int) -> None:
        """Make the authority, the enrolment key, and the operator's folder."""
        if any(folder.exists() for folder in self._folders):
            raise ConfigError(
                str(self.root),
                "holds keys already; choose an empty folder, or `wallflower keys "
                "server` to renew the server's certificate",
            )
        if not 0 < len(name) <= _LONGEST_TITLE:
            raise InputError("name", f'"{name}"', f"1 to {_LONGEST_TITLE} characters")
        for address in addresses:
            check_host(address)
        try:
            for folder in self._folders:
                folder.mkdir(parents=True, mode=0o700)
        except OSError as error:
            raise ConfigError(
                str(self.root), f"no folder can be made in it ({error.strerror})"
            ) from None
        with _whole_or_nothing(self.root, self._folders):
            self._fill(name, addresses, days)

    def _fill(self, name: str, addresses: Sequence[str], days: int) -> None:
        pair = make_authority(name, now=_now())
        enrolment = EnrolmentKey.generate()
        write_private(self.authority / "ca.key", pair.private_key)
        (self.authority / AUTHORITY_CERTIFICATE).write_bytes(pair.certificate)
        enrolment_pem = private_key_pem(enrolment.private_bytes())
        write_private(self.authority / "enrolment.key", enrolment_pem)
        write_private(self.operator / "superexec.secret", secrets.token_bytes(48))
        (self.operator / AUTHORITY_CERTIFICATE).write_bytes(pair.certificate)
        public = public_key_pem(enrolment.public_key)
        (self.operator / ENROLMENT_PUBLIC).write_bytes(public)
        (self.operator / REVOKED).write_text("# serials of revoked nodes\n")
        # The gRPC server reads names, and reads them again when the file changes.
        (self.operator / REVOKED_NODES).write_text("# names of revoked nodes\n")
        self.issue_server(addresses, days=days)

    def issue_server(
        self,
        addresses: Sequence[str],
        *,
        days: int,
        now: datetime.datetime | None = None,
    ) -> Path:
        """Issue a server certificate; the former one is kept beside it.

        ``localhost`` and ``127.0.0.1`` are always among its names, since the operator's
        own tools reach SuperLink there.
        """
        names = list(dict.fromkeys([*addresses, "localhost", "127.0.0.1"]))
        pair = make_server_certificate(
            self._authority(), names, now=now or _now(), days=days
        )
        key, certificate = self.operator / "server.key", self.operator / "server.crt"
        for path in (key, certificate):
            if path.exists():
                path.rename(path.with_suffix(path.suffix + ".former"))
        write_private(key, pair.private_key)
        certificate.write_bytes(pair.certificate)
        return certificate

    def check_new(self, names: Sequence[str]) -> None:
        """Refuse names that nodes cannot have, have already, or would have twice."""
        for name in names:
            if len(name) > 60 or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", name):
                raise InputError("node name", f'"{name}"', _NAME)
            if names.count(name) > 1:
                raise InputError("node name", f'"{name}" twice', "different names")
            if (folder := self.nodes / name).exists():
                taken = "exists already; revoke the node or choose another name"
                raise ConfigError(str(folder), taken)

    def add_node(
        self, name: str, *, capacity: int, days: int, now: datetime.datetime
    ) -> Path:
        """Make a node's keys and enrol it for at most `capacity` users."""
        self.check_new((name,))
        folder = self.nodes / name
        identity = NodeIdentity.generate(name)
        expires = int((now + datetime.timedelta(days=days)).timestamp())
        certificate = self._enrolment().issue(
            name, identity.public_key, not_after=expires, capacity=capacity
        )
        folder.mkdir(mode=0o700)
        private, public = _flower_key()
        identity_pem = private_key_pem(identity.private_bytes())
        with _whole_or_nothing(folder, (folder,)):
            write_private(folder / "flower.key", private)
            (folder / "flower.pub").write_bytes(public)
            write_private(folder / IDENTITY_KEY, identity_pem)
            (folder / IDENTITY_CERTIFICATE).write_bytes(armour(certificate))
            for shared in (AUTHORITY_CERTIFICATE, ENROLMENT_PUBLIC, REVOKED):
                shutil.copyfile(self.operator / shared, folder / shared)
        return folder

    def register(self, names: Sequence[str], superlink: str) -> list[str]:
        """Register the public keys of nodes with SuperLink; all of the folder if none.

        Gives the names that are new to SuperLink; a key it knows already is left alone.
        """
        found = {path.parent.name: path for path in self.nodes.glob("*/flower.pub")}
        for name in names:
            if name not in found:
                known = ", ".join(sorted(found)) or "none"
                raise InputError("node", f'"{name}"', f"one of {known}")
        new = []
        for name in names or sorted(found):
            try:
                _flwr("supernode", "register", str(found[name]), superlink)
            except UnavailableError as error:
                if "already" not in str(error):
                    raise
            else:
                new.append(name)
        return new

    def revoke(self, name: str) -> int:
        """Add a node's serial to every list of revoked ones; return the serial."""
        folder = self.nodes / name
        serial = read_certificate(folder / IDENTITY_CERTIFICATE).serial
        lists = [self.operator / REVOKED, *sorted(self.nodes.glob(f"*/{REVOKED}"))]
        for path in lists:
            if serial not in read_revoked(path):
                with path.open("a", encoding="utf-8") as file:
                    file.write(f"{serial}  # {name}\n")
        with (self.operator / REVOKED_NODES).open("a", encoding="utf-8") as file:
            file.write(f"{name}\n")
        return serial

    def records(self) -> list[NodeRecord]:
        """Return every node with its expiry, in order of name."""
        revoked = read_revoked(self.operator / REVOKED)
        found = []
        for path in sorted(self.nodes.glob(f"*/{IDENTITY_CERTIFICATE}")):
            held = read_certificate(path)
            expires = datetime.datetime.fromtimestamp(held.not_after, datetime.UTC)
            found.append(
                NodeRecord(
                    held.node_id,
                    held.serial,
                    expires,
                    held.capacity,
                    held.serial in revoked,
                )
            )
        return found

    def server_expires(self) -> datetime.datetime:
        """Return when the server's certificate ends."""
        try:
            pem = (self.operator / "server.crt").read_bytes()
        except OSError:
            raise ConfigError(
                str(self.root),
                "holds no keys: there is no operator/server.crt; `wallflower keys "
                "init` makes them, --keys names another folder",
            ) from None
        return _certificate(self.operator / "server.crt", pem).not_valid_after_utc

    def _authority(self) -> KeyPair:
        key = read_private(self.authority / "ca.key")
        path = self.authority / AUTHORITY_CERTIFICATE
        _certificate(path, path.read_bytes())
        return KeyPair(path.read_bytes(), key)

    def _enrolment(self) -> EnrolmentKey:
        seed = read_seed(self.authority / "enrolment.key")
        return EnrolmentKey.from_private_bytes(seed)


@contextmanager
def _whole_or_nothing(what: Path, made: Sequence[Path]) -> Iterator[None]:
    """Remove all that was made here if the disk does not take the whole of it."""
    try:
        yield
    except OSError as error:
        for path in made:
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
        raise UnavailableError(
            f"{what} cannot be filled ({error.strerror}); nothing was written"
        ) from None


def _certificate(path: Path, pem: bytes) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(pem)
    except ValueError:
        raise ConfigError(
            str(path), "is no certificate in PEM form; restore it"
        ) from None


def _flwr(*arguments: str) -> None:
    """Run Flower's command line; raise UnavailableError with the end of what it said.

    What it takes to find it is imported here: no other command for keys needs it.
    """
    from wallflower.engines.process import find_program

    try:
        done = subprocess.run(
            [find_program("flwr"), *arguments],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
    except subprocess.TimeoutExpired:
        raise UnavailableError("flwr did not answer within 120 s") from None
    if done.returncode != 0:
        tail = (done.stdout + done.stderr).strip()[-300:]
        raise UnavailableError(f"`flwr {' '.join(arguments)}` failed: {tail}")


def _flower_key() -> tuple[bytes, bytes]:
    """Make a SuperNode's key pair: ECDSA P-384 in OpenSSH form, as Flower demands."""
    key = ec.generate_private_key(ec.SECP384R1())
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.OpenSSH,
        serialization.NoEncryption(),
    )
    public = key.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    return private, public + b"\n"


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


# The key that signs invitations: a shop's or a panel's, and not the operator's.
#
# ``inviter.key`` stays with whoever invites. ``inviter.pub`` goes to the operator
# (`visitors.inviter`) and to every trustee, with ``revoked.txt`` beside it: the serials
# of invitations that are no longer good.
#
# Who holds ``inviter.key`` decides who may come: were it on the server, a lying server
# could invent people.


INVITER_KEY, INVITER_PUBLIC = "inviter.key", "inviter.pub"


class Inviter:
    """Signs invitations with the key of a folder; the first use makes the key."""

    def __init__(self, folder: Path) -> None:
        path = folder / INVITER_KEY
        self.is_new = not path.exists()
        if self.is_new:
            key = EnrolmentKey.generate()
            try:
                private_directory(folder)
            except OSError as error:
                problem = f"no folder can be made there ({error.strerror})"
                raise ConfigError(str(folder), problem) from None
            public, revoked = folder / INVITER_PUBLIC, folder / REVOKED
            with _whole_or_nothing(folder, (path, public, revoked)):
                write_private(path, private_key_pem(key.private_bytes()))
                public.write_bytes(public_key_pem(key.public_key))
                revoked.write_text("# serials of revoked invitations\n")
        self._key = EnrolmentKey.from_private_bytes(read_seed(path))

    def invite(
        self, count: int, *, days: int, now: datetime.datetime
    ) -> Iterator[Invitation]:
        """Make so many invitations; each lets one person come once."""
        until = int((now + datetime.timedelta(days=days)).timestamp())
        for _ in range(count):
            yield Invitation.issue(self._key, not_after=until)
