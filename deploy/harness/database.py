"""PostgreSQL on a host of the laboratory: Debian's server, with passwords."""

from __future__ import annotations

import pwd
import secrets
import shutil
import subprocess
import tempfile
import urllib.parse
from pathlib import Path

from deploy.harness.network import Host
from deploy.harness.processes import Process, Supervisor, listening, until
from wallflower.protocol.errors import UnavailableError

PORT = 5432
_ACCOUNT = "postgres"  # the server does not run as root
_USER, _DATABASE = "wallflower", "postgres"
_START_S = 60.0


def postgres_binaries() -> Path | None:
    """Find the newest server that Debian's packages installed."""
    found = sorted(
        Path("/usr/lib/postgresql").glob("*/bin/postgres"),
        key=lambda path: float(path.parts[-3]),
    )
    return found[-1].parent if found else None


class HostDatabase:
    """One server, which other hosts reach with a password.

    Parameters
    ----------
    supervisor : Supervisor
        Starts and stops it.
    host : Host
        Where it listens.
    folder : Path
        For the password file. The server's own files lie elsewhere: its account must
        reach them, and every run of the tests closes their folder to other accounts.
    """

    def __init__(self, supervisor: Supervisor, host: Host, folder: Path) -> None:
        binaries = postgres_binaries()
        if binaries is None:
            raise UnavailableError("PostgreSQL is not installed: `make test-postgres`")
        self._supervisor, self._host = supervisor, host
        self._binaries = binaries
        self._home = Path(tempfile.mkdtemp(prefix="wallflower-postgres-"))
        self.passwords = folder / "pgpass"  # for PGPASSFILE of those who connect
        self.url = f"postgresql://{_USER}@{host.address}:{PORT}/{_DATABASE}"

    def make(self) -> None:
        """Make the files of an empty database, and its password."""
        account = pwd.getpwnam(_ACCOUNT)
        password = secrets.token_hex(16)
        home = self._home
        given = home / "password"
        given.write_text(password)
        for path in (home, given):
            shutil.chown(path, _ACCOUNT, _ACCOUNT)
        subprocess.run(
            [
                str(self._binaries / "initdb"),
                f"--pgdata={home / 'data'}",
                f"--username={_USER}",
                f"--pwfile={given}",
                "--auth=scram-sha-256",
                "--encoding=UTF8",
                "--locale=C",
            ],
            check=True,
            stdout=subprocess.DEVNULL,
            user=account.pw_uid,
            group=account.pw_gid,
            extra_groups=[],
            cwd=home,
        )
        network = self._host.address.rpartition(".")[0]
        with (home / "data" / "pg_hba.conf").open("a") as rules:
            rules.write(f"host all {_USER} {network}.0/24 scram-sha-256\n")
        where = urllib.parse.urlsplit(self.url)
        line = f"{where.hostname}:{where.port}:{_DATABASE}:{_USER}:{password}\n"
        self.passwords.touch(mode=0o600)
        self.passwords.write_text(line)

    def remove(self) -> None:
        """Remove its files, once it is stopped."""
        shutil.rmtree(self._home)

    def start(self) -> Process:
        """Start the server, and wait until it listens."""
        home = self._home
        drop = f"--reuid={_ACCOUNT}", f"--regid={_ACCOUNT}", "--clear-groups"
        process = self._supervisor.start(
            "postgres",
            self._host,
            [
                *("setpriv", *drop, str(self._binaries / "postgres")),
                *("-D", str(home / "data"), "-k", str(home)),
                *("-c", f"listen_addresses={self._host.address}"),
            ],
            environment={"PATH": "/usr/bin:/bin", "LANG": "C"},
            folder=home,
        )
        until("PostgreSQL's port", lambda: listening(self._host, PORT), _START_S)
        return process
