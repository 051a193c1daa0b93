"""How fast a node may talk, and how much one network may take of what is for all."""

from __future__ import annotations

import functools
import ipaddress
from collections import Counter, OrderedDict
from urllib.parse import unquote


class TokenBucket:
    """Allows `burst` at once and `rate` per second in the long run.

    The caller gives the time, so that a test needs no clock.
    """

    __slots__ = ("_burst", "_last", "_left", "_rate")

    def __init__(self, rate: float, burst: float, now: float) -> None:
        self._rate = rate
        self._burst = burst
        self._left = burst
        self._last = now

    def left(self, now: float) -> float:
        """Return how much may be taken now."""
        refill = max(0.0, now - self._last) * self._rate
        self._left = min(self._burst, self._left + refill)
        self._last = now
        return self._left

    def take(self, now: float) -> bool:
        """Take one if there is one."""
        if self.left(now) < 1:
            return False
        self._left -= 1
        return True


class Blame:
    """How many refusals each network has caused lately; bounded in memory.

    Parameters
    ----------
    rate, burst : float
        Refusals a network may cause per second, and at once.
    most_addresses : int
        Networks remembered; the one not seen for longest is forgiven first.
    """

    def __init__(self, rate: float, burst: float, most_addresses: int = 4096) -> None:
        self._rate = rate
        self._burst = burst
        self._most = most_addresses
        self._buckets: OrderedDict[str, TokenBucket] = OrderedDict()

    def __len__(self) -> int:
        """How many networks are remembered."""
        return len(self._buckets)

    def is_blocked(self, address: str, now: float) -> bool:
        """Say whether a network has used up its refusals."""
        bucket = self._buckets.get(address)
        return bucket is not None and bucket.left(now) < 1

    def add(self, address: str, now: float) -> None:
        """Note one more refusal of a network."""
        bucket = self._buckets.get(address)
        if bucket is None:
            bucket = self._buckets[address] = TokenBucket(self._rate, self._burst, now)
        self._buckets.move_to_end(address)
        bucket.take(now)
        if len(self._buckets) > self._most:
            self._buckets.popitem(last=False)


class FairPlaces:
    """So many places, of which no few networks can take all.

    A quarter is for whoever comes first, so that many nodes behind one address get in.
    Of the rest no network gets more than one place in 32: it takes 24 networks to fill
    them.
    """

    __slots__ = ("_held", "_most", "_share", "_taken")

    def __init__(self, most: int) -> None:
        self._most = most
        self._share = max(1, most // 32)
        self._taken = 0
        self._held: Counter[str] = Counter()

    @property
    def taken(self) -> int:
        """How many places are taken."""
        return self._taken

    def take(self, network: str) -> bool:
        """Take a place for a network, if it may have one more."""
        early = self._taken < self._most // 4
        room = early or self._held.get(network, 0) < self._share
        if self._taken >= self._most or not room:
            return False
        self._held[network] += 1
        self._taken += 1
        return True

    def give_back(self, network: str) -> None:
        """Free a place that a network took."""
        self._held[network] -= 1
        self._taken -= 1
        if not self._held[network]:
            del self._held[network]


def address_of(peer: str) -> str:
    """Take the address out of gRPC's ``ipv4:10.0.0.1:4711`` or ``ipv6:%5B::1%5D:1``."""
    kind, _, rest = peer.partition(":")
    return rest.rpartition(":")[0] if kind in {"ipv4", "ipv6"} else peer


@functools.lru_cache(maxsize=1024)
def network_of(address: str) -> str:
    """Name the network of an address: its /24, or its /64.

    Examples
    --------
    >>> network_of("192.0.2.17")
    '192.0.2.0/24'
    >>> network_of("%5B2001:db8::17%5D")
    '2001:db8::/64'
    >>> network_of("::ffff:192.0.2.17")
    '192.0.2.0/24'
    >>> network_of("unix:/run/grpc_server")
    'unix:/run/grpc_server'
    """
    try:
        found = ipaddress.ip_address(unquote(address).strip("[]").partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
        found = found.ipv4_mapped
    bits = 24 if found.version == 4 else 64
    return str(ipaddress.ip_network((found, bits), strict=False))


# What one connection may hold in gRPC's own memory before anybody is known.
#
# gRPC keeps what arrives until our code reads it. Left alone it lets a fast sender's
# window grow to megabytes, read or not. And each piece of a message keeps alive the 8
# KiB that were read from the network together with it, so that a message of 4 KiB in
# pieces of 24 bytes holds 1.4 MiB. So nothing is read of a stranger, and a stream that
# nobody reads has a window of 256 bytes. `make bench-strangers` measures what is left.


Options = list[tuple[str, int]]

# A node needs one stream; the others are for health checks.
_MOST_STREAMS = 4
_WINDOW_BYTES = 256
_MOST_HEADER_BYTES = 8 * 1024
_HANDSHAKE_S = 15
_IDLE_S = 60
# A connection that is so old gets no new streams; those it has go on.
_AGE_S = 3600


def connection_options(most_connections: int) -> Options:
    """Return the options of a gRPC server that anybody can reach."""
    return [
        ("grpc.max_allowed_incoming_connections", most_connections),
        ("grpc.max_concurrent_streams", _MOST_STREAMS),
        ("grpc.max_metadata_size", _MOST_HEADER_BYTES),
        ("grpc.absolute_max_metadata_size", _MOST_HEADER_BYTES),
        # A message that is being read gets the window it needs, this one or not.
        ("grpc.http2.lookahead_bytes", _WINDOW_BYTES),
        ("grpc.http2.bdp_probe", 0),
        ("grpc.http2.hpack_table_size.decoder", 0),
        ("grpc.server_handshake_timeout_ms", _HANDSHAKE_S * 1000),
        ("grpc.http2.settings_timeout", _HANDSHAKE_S * 1000),
        ("grpc.max_connection_idle_ms", _IDLE_S * 1000),
        ("grpc.max_connection_age_ms", _AGE_S * 1000),
        # Two servers on one port would share its nodes; the second must fail to open.
        ("grpc.so_reuseport", 0),
    ]
