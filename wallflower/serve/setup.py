"""What `wallflower serve` tells its processes: plain values, as JSON."""

from __future__ import annotations

import dataclasses
import ipaddress
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from wallflower.protocol.errors import ConfigError, InputError
from wallflower.protocol.files.keyfiles import read_private
from wallflower.protocol.identity.certificates import KeyPair
from wallflower.serve.gate import read_proxies
from wallflower.strategy.store.database import POINTER_FILE
from wallflower.strategy.store.journal import Journal
from wallflower.strategy.transport.grpc.host import SECRET_FILE
from wallflower.strategy.transport.visitors.handler import VisitorRun, visitor_trust


@dataclass(frozen=True, slots=True)
class WorkerSetup:
    """What one worker does.

    Attributes
    ----------
    run_dir : the run's directory.
    listener : the descriptor of the socket that all workers accept from.
    grpc : ``host:port`` of the gRPC wire; empty for none.
    origins : websites whose pages may call.
    proxies : addresses or networks whose X-Forwarded-For is believed.
    certificate, private_key : files of what visitors see; empty behind a proxy.
    """

    run_dir: str
    listener: int
    grpc: str = ""
    origins: tuple[str, ...] = ()
    proxies: tuple[str, ...] = ()
    certificate: str = ""
    private_key: str = ""

    def to_text(self) -> str:
        """Return the setup as the word that a worker's process is started with."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def read(cls, text: str) -> WorkerSetup:
        """Read what `to_text` wrote."""
        fields: dict[str, Any] = json.loads(text)
        for name in ("origins", "proxies"):
            fields[name] = tuple(fields[name])
        return cls(**fields)

    def check(self, host: str) -> None:
        """Refuse what would serve people badly; raises InputError."""
        read_proxies(self.proxies)
        for origin in self.origins:
            _check_origin(origin)
        if bool(self.certificate) != bool(self.private_key):
            raise InputError("certificate", "without --key (or reverse)", "both")
        if not self.certificate and not self.proxies and not _is_loopback(host):
            raise InputError(
                "host",
                host,
                "loopback, unless --certificate and --key are given, or --proxy says "
                "who brings TLS",
            )

    def tls(self) -> KeyPair | None:
        """Read the certificate and its key."""
        if not self.certificate:
            return None
        try:
            certificate = Path(self.certificate).read_bytes()
        except OSError as error:
            raise ConfigError(
                "certificate", f"{self.certificate} cannot be read ({error.strerror})"
            ) from None
        return KeyPair(certificate, read_private(Path(self.private_key)))


def read_run(run_dir: Path) -> VisitorRun:
    """Read what a worker must know of its run."""
    with Journal.read(run_dir) as journal:
        config, run_id = journal.config, journal.run_id
    if config.visitors is None:
        raise InputError("run", run_dir, "one whose experiment has [visitors]")
    admission = config.visitors.admission
    arms = config.experiment.arms
    return VisitorRun(run_id, arms, admission, visitor_trust(config))


def check_copy(run_dir: Path) -> None:
    """Refuse to orchestrate from a pointer alone; raises InputError.

    A secret of this host's own would shut the trustees out, once it takes over.
    """
    if (run_dir / POINTER_FILE).exists() and not (run_dir / SECRET_FILE).exists():
        raise InputError(
            "run",
            run_dir,
            f"a copy of its whole directory: {SECRET_FILE} lets the trustees in. Or "
            "--no-orchestrator",
        )


def _check_origin(origin: str) -> None:
    parts = urlsplit(origin)
    if parts.scheme not in ("https", "http") or not parts.hostname or parts.path:
        raise InputError("origin", f'"{origin}"', "https://HOST, without a path")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
