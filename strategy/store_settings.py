"""``[store]``: where a run is written down."""

from __future__ import annotations

import urllib.parse
from dataclasses import dataclass

from wallflower.protocol.errors import InputError

_SCHEMES = ("postgresql", "postgres")


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """Where a run is written down.

    `url` is a PostgreSQL database that several hosts may share, as
    ``postgresql://user@host/database``. It is empty for SQLite in the run directory.

    The url is kept with the run, so it may hold no password. PostgreSQL's clients take
    one from ``PGPASSWORD``, ``~/.pgpass`` or ``PGPASSFILE``.
    """

    url: str = ""

    def __post_init__(self) -> None:
        if not self.url:
            return
        # No message repeats an address: a password may be in it.
        try:
            parts = urllib.parse.urlsplit(self.url)
            secret = parts.password is not None or "password" in parts.query.lower()
        except ValueError:
            raise InputError("url", "no address", _ALLOWED) from None
        if parts.scheme not in _SCHEMES:
            raise InputError("url", f'of kind "{parts.scheme[:20]}"', _ALLOWED)
        if secret:
            raise InputError(
                "url",
                "an address with a password",
                "one without: it is kept with the run. Put the password into "
                "~/.pgpass or PGPASSWORD",
            )


_ALLOWED = "postgresql://user@host/database, or nothing for SQLite"
