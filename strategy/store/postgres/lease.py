"""The lease: one server writes a run, and whoever lost it writes nothing any more."""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import threading
import time
from pathlib import Path
from typing import Any

import psycopg

from wallflower.protocol.errors import UnavailableError
from wallflower.strategy.store.postgres import statements
from wallflower.strategy.store.postgres.connecting import Connector, native

# A standby takes over within five seconds: the lease ends, then it looks.
_LEASE_S, _RENEW_S, _LOOK_S = 3.5, 1.0, 0.25


class PostgresLease:
    """The right to write a run; renewed every second by a thread of its own."""

    def __init__(self, connector: Connector, run_dir: Path) -> None:
        self._connector, self._run_dir = connector, run_dir
        self._token = secrets.token_hex(16)
        self._over = threading.Event()
        holder = f"{socket.gethostname()}, process {os.getpid()}"
        self._take(holder)
        self._thread = threading.Thread(
            target=self._renew, name="postgres-lease", daemon=True
        )
        self._thread.start()

    def fence(self, connection: psycopg.Connection[Any]) -> str:
        """Return the number of the transaction; raise where the lease was lost."""
        found = connection.execute(native(statements.FENCE), [self._token]).fetchall()
        if not found:
            raise UnavailableError(
                f"another server took over {self._connector.name}: this one was away "
                "too long and writes nothing any more. Nothing is lost"
            )
        [(number,)] = found
        return str(number)

    def release(self) -> None:
        """Leave the run to another server."""
        self._over.set()
        self._thread.join()
        with (
            contextlib.suppress(UnavailableError),
            self._connector.connect() as connection,
        ):
            connection.execute(native(statements.RELEASE_LEASE), [self._token])

    def _take(self, holder: str) -> None:
        """Take the lease; one that nobody renews ends, and is waited for."""
        give_up, before = time.monotonic() + 2 * _LEASE_S, None
        while True:
            with self._connector.connect() as connection:
                values = [self._token, holder, _LEASE_S]
                if connection.execute(native(statements.TAKE_LEASE), values).fetchall():
                    return
                [(other, _, expires)] = connection.execute(
                    native(statements.LEASE)
                ).fetchall()
            if before not in (None, expires) or time.monotonic() > give_up:
                raise UnavailableError(
                    f"another server works on {self._connector.name} ({other}); stop "
                    "it first, or look at the run by `wallflower status "
                    f"{self._run_dir}`"
                )
            before = expires
            time.sleep(_LOOK_S)

    def _renew(self) -> None:
        """Renew the lease until it is released or lost; the fence tells who lost it."""
        while not self._over.is_set():
            with (
                contextlib.suppress(UnavailableError, psycopg.Error),
                self._connector.connect() as connection,
            ):
                while not self._over.wait(_RENEW_S):
                    values = [_LEASE_S, self._token]
                    if not connection.execute(
                        native(statements.RENEW_LEASE), values
                    ).fetchall():
                        return
            self._over.wait(_LOOK_S)
