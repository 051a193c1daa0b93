"""File descriptors: every connected node costs the server one.

A process is born with a soft limit (often 1,024) far below what the kernel lets it
have. It is raised at the start; where even the hard limit is too low, fewer streams are
promised, and that is said at the start instead of by a gRPC server that dies at its
limit.
"""

from __future__ import annotations

import logging
import resource
from pathlib import Path

from wallflower.protocol.errors import UnavailableError

# Journal, spool, logs, Flower's connections, health checks, and streams that are being
# told that there is no room.
RESERVED = 256
SPARE_STREAMS = 32  # beyond hosted nodes: a new one is there before an old one goes
_FEWEST_STREAMS = 2  # a cohort of one node is never asked

_log = logging.getLogger(__name__)


def streams_allowed(wanted: int, hosted: int = 0) -> int:
    """Raise the limit for `wanted` streams; give how many there is room for.

    Each of the `hosted` nodes, which live in this process, takes the other end of its
    stream, too. Raises UnavailableError where they could not all connect, or not even
    two nodes.
    """
    in_use = len(list(Path("/dev/fd").iterdir())) + hosted
    needed = in_use + RESERVED + wanted
    limit = _raise_limit(needed)
    if limit >= needed:
        return wanted
    room = limit - in_use - RESERVED
    warning = (
        f"{wanted:,} streams need {needed:,} file descriptors, this process may have "
        f"{limit:,}: room for {max(0, room):,}. Raise the hard limit (LimitNOFILE= in "
        "systemd, ulimits in compose, `ulimit -Hn` in a shell)"
    )
    if room < max(_FEWEST_STREAMS, hosted):
        raise UnavailableError(warning)
    _log.warning(
        warning,
        extra={"event": "few-descriptors", "needed": needed, "limit": limit},
    )
    return room


def _raise_limit(needed: int) -> int:
    """Raise the soft limit, and the hard one where we may; give what it is then."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return needed
    for target in ((needed, _higher(hard, needed)), (hard, hard)):
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, target)
        except (OSError, ValueError):
            continue  # only root may raise the hard limit
        return target[0]
    return soft


def _higher(hard: int, needed: int) -> int:
    return hard if hard == resource.RLIM_INFINITY else max(hard, needed)
