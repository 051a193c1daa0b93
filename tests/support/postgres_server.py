"""A PostgreSQL server of the tests' own: started, killed and started again by its pid.

The binaries are Debian's. The files lie in a temporary folder, the only way in is a
socket there, and `fsync` is on, as it is where people's runs are kept.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import psycopg

_ACCOUNT = "postgres"  # the server does not run as root
_USER, _DATABASE = "wallflower", "postgres"
_START_S = 60.0


class PostgresServer:
    """One server; `start` it, then `url` is its address."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._binaries = _binaries()
        self._process: subprocess.Popen[str] | None = None
        query = urllib.parse.urlencode({"host": str(folder)})
        self.url = f"postgresql://{_USER}@/{_DATABASE}?{query}"

    def make(self) -> None:
        """Make the files of an empty database."""
        command = [
            str(self._binaries / "initdb"),
            f"--pgdata={self._folder / 'data'}",
            f"--username={_USER}",
            "--auth=trust",
            "--encoding=UTF8",
            "--locale=C",
            "--no-sync",
        ]
        subprocess.run(
            command, check=True, stdout=subprocess.DEVNULL, **_account_options()
        )

    def start(self) -> None:
        """Start the server and wait until it answers."""
        command = [
            str(self._binaries / "postgres"),
            *("-D", str(self._folder / "data"), "-k", str(self._folder)),
            *("-c", "listen_addresses=", "-c", "fsync=on"),
        ]
        give_up = time.monotonic() + _START_S
        while True:
            with (self._folder / "log").open("ab") as log:
                self._process = subprocess.Popen(
                    command, stdout=log, stderr=log, **_account_options()
                )
            if self._is_ready(give_up):
                return
            # The processes of a server that was killed are about to end.
            if time.monotonic() > give_up:
                raise RuntimeError((self._folder / "log").read_text())
            time.sleep(0.1)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """End the server: in order, or by SIGKILL as a crash would."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait()
            self._process = None

    def restart(self, how: signal.Signals = signal.SIGKILL) -> None:
        """End the server and start it again at once."""
        self.stop(how)
        self.start()

    def cpu_s(self) -> float:
        """Return the CPU seconds of its processes that are there."""
        assert self._process is not None
        main = psutil.Process(self._process.pid)
        used = [process.cpu_times() for process in (main, *main.children())]
        return sum(times.user + times.system for times in used)

    def _is_ready(self, give_up: float) -> bool:
        assert self._process is not None
        while self._process.poll() is None and time.monotonic() < give_up:
            with contextlib.suppress(psycopg.OperationalError):
                psycopg.connect(self.url).close()
                return True
            time.sleep(0.05)
        return False


@contextmanager
def running_postgres() -> Iterator[PostgresServer]:
    """Run a server in a folder of its own; both are gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="wallflower-postgres-"))
    try:
        if os.geteuid() == 0:
            shutil.chown(folder, _ACCOUNT, _ACCOUNT)
        server = PostgresServer(folder)
        server.make()
        server.start()
        try:
            yield server
        finally:
            server.stop(signal.SIGQUIT)  # at once: the files go anyway
    finally:
        shutil.rmtree(folder)


@contextmanager
def running_store(name: str) -> Iterator[PostgresServer | None]:
    """Run the database that a run is kept in; SQLite needs none."""
    if name == "sqlite":
        yield None
        return
    with running_postgres() as server:
        yield server


def _account_options() -> dict[str, Any]:
    if os.geteuid() != 0:
        return {}
    account = pwd.getpwnam(_ACCOUNT)
    return {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}


def _binaries() -> Path:
    """Find the newest server that Debian's packages installed, or one on the PATH."""
    found = sorted(
        Path("/usr/lib/postgresql").glob("*/bin/postgres"),
        key=lambda path: float(path.parts[-3]),
    )
    if found:
        return found[-1].parent
    there = shutil.which("postgres")
    if there is None:
        raise RuntimeError("no PostgreSQL here: `make test-postgres` installs Debian's")
    return Path(there).parent
