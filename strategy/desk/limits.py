"""Token buckets: how fast a node may talk, how often an address may be refused."""

from __future__ import annotations

from collections import OrderedDict


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
        """How much may be taken now."""
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
    """How many refusals each network address has caused lately; bounded in memory.

    Parameters
    ----------
    rate, burst : float
        Refusals an address may cause per second, and at once.
    most_addresses : int
        Addresses remembered; the one not seen for longest is forgiven first.
    """

    def __init__(self, rate: float, burst: float, most_addresses: int = 4096) -> None:
        self._rate = rate
        self._burst = burst
        self._most = most_addresses
        self._buckets: OrderedDict[str, TokenBucket] = OrderedDict()

    def __len__(self) -> int:
        """How many addresses are remembered."""
        return len(self._buckets)

    def blocked(self, address: str, now: float) -> bool:
        """Say whether an address has used up its refusals."""
        bucket = self._buckets.get(address)
        return bucket is not None and bucket.left(now) < 1

    def add(self, address: str, now: float) -> None:
        """Note one more refusal of an address."""
        bucket = self._buckets.get(address)
        if bucket is None:
            bucket = self._buckets[address] = TokenBucket(self._rate, self._burst, now)
        self._buckets.move_to_end(address)
        bucket.take(now)
        if len(self._buckets) > self._most:
            self._buckets.popitem(last=False)


def address_of(peer: str) -> str:
    """Take the address out of gRPC's ``ipv4:10.0.0.1:4711`` or ``ipv6:%5B::1%5D:1``."""
    kind, _, rest = peer.partition(":")
    return rest.rpartition(":")[0] if kind in {"ipv4", "ipv6"} else peer
