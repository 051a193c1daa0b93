"""TLS 1.3 and nothing older, from a library that cannot be asked for it.

gRPC for Python has no setting for the lowest TLS version. The suites it offers in TLS
1.2 come from the environment, though, and are read once, when gRPC is loaded. The one
named here needs a key shared beforehand, which nobody has, so that TLS 1.2 is left with
nothing to agree on; the suites of TLS 1.3 are not on that list and stay. `clients`,
`strategy` and `wallflower` import this module first; children inherit the variable.

A process that loaded gRPC before (Flower's, unless it was started with the variable
set) keeps TLS 1.2: there the gRPC server ends every stream that was not negotiated as
1.3, and a node says so in its log.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping

VARIABLE = "GRPC_SSL_CIPHER_SUITES"
NO_TLS_12 = "ECDHE-PSK-CHACHA20-POLY1305"
_WANTED = b"TLSv1.3"

_in_time = "grpc" not in sys.modules or os.environ.get(VARIABLE) == NO_TLS_12
os.environ[VARIABLE] = NO_TLS_12


def is_enforced() -> bool:
    """Say whether gRPC refuses TLS 1.2 in this process, as server and as client."""
    return _in_time


def is_current(peer: Mapping[str, Iterable[bytes]]) -> bool:
    """Say whether a gRPC peer's authentication context was negotiated as TLS 1.3."""
    return list(peer.get("ssl_tls_version", ())) == [_WANTED]
