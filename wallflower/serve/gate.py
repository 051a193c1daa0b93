"""What is asked of every caller before anything of theirs is read.

Limits count by network (a /24 or /64), and each worker counts for itself.
"""

from __future__ import annotations

import functools
import ipaddress
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields

from wallflower.listening.limits import Blame, FairPlaces, network_of
from wallflower.protocol.errors import InputError
from wallflower.protocol.numbers import whole
from wallflower.strategy.transport.visitors.handler import PollResult

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
TOO_FAST = "too-fast"
_KNOWN_ADDRESSES = 1024  # each is looked at with every poll that comes from it


@dataclass(frozen=True, slots=True)
class VisitorLimits:
    """How much, how fast, how many, how long; of one worker.

    Attributes
    ----------
    most_connections : int
        Open connections; shared out by network (`FairPlaces`), stated proxies apart.
    most_waiting : int
        Polls that were read and are not answered; the next one is told to come again.
    polls_per_s, polls_burst : int
        Polls of one network, in the long run and at once.
    refusals_per_s, refusals_burst : int
        Polls of one network that no honest visitor sends, before it is not listened to.
    request_s : float
        How long a request may take to arrive, its headers and its body.
    """

    most_connections: int = 4_000
    most_waiting: int = 256
    polls_per_s: int = 200
    polls_burst: int = 2_000
    refusals_per_s: int = 5
    refusals_burst: int = 100
    request_s: float = 10.0

    def __post_init__(self) -> None:
        """Refuse limits that would let nothing through."""
        for field in fields(self):
            name, value = field.name.replace("_", "-"), getattr(self, field.name)
            if field.type == "int":
                whole(name, value, at_least=1)
            elif not 0 < value <= 3600:
                raise InputError(name, value, "more than 0 seconds, at most an hour")


def read_proxies(texts: Sequence[str]) -> tuple[Network, ...]:
    """Read the addresses or networks of proxies whose X-Forwarded-For is believed.

    Examples
    --------
    >>> read_proxies(["10.0.0.0/8", "::1"])
    (IPv4Network('10.0.0.0/8'), IPv6Network('::1/128'))
    """
    found = []
    for text in texts:
        try:
            found.append(ipaddress.ip_network(text))
        except ValueError:
            allowed = "an address such as 10.0.0.7, or a network such as 10.0.0.0/8"
            raise InputError("proxy", f'"{text}"', allowed) from None
    return tuple(found)


@functools.lru_cache(maxsize=_KNOWN_ADDRESSES)
def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def _without_port(text: str) -> str:
    """Return the address in ``192.0.2.1:4711`` or ``[2001:db8::1]:4711``."""
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.partition(":")[0] if text.count(":") == 1 else text


class CallerGate:
    """Knows callers by their networks, and whom not to listen to.

    Parameters
    ----------
    limits : VisitorLimits
        The worker's limits.
    proxies : Sequence[Network]
        Whose word about the caller is believed.
    clock : Callable[[], float]
        Monotonic seconds.
    """

    def __init__(
        self,
        limits: VisitorLimits,
        proxies: Sequence[Network],
        clock: Callable[[], float],
    ) -> None:
        self.limits = limits
        self.waiting = 0
        self._proxies = proxies
        self._clock = clock
        self._places = FairPlaces(limits.most_connections)
        self._blame = Blame(limits.refusals_per_s, limits.refusals_burst)
        self._pace = Blame(limits.polls_per_s, limits.polls_burst)

    @property
    def connections(self) -> int:
        """How many connections are open, those of proxies apart."""
        return self._places.taken

    def is_proxy(self, address: str) -> bool:
        """Return whether an address is a stated proxy's."""
        found = _address(address)
        return found is not None and any(found in proxy for proxy in self._proxies)

    def take_place(self, network: str) -> bool:
        """Take a connection's place, if the network may have one more."""
        return self._places.take(network)

    def give_back(self, network: str) -> None:
        """Free a connection's place."""
        self._places.give_back(network)

    def caller(self, peer: str, forwarded: Sequence[str]) -> str:
        """Name the network of whoever calls.

        Parameters
        ----------
        peer : str
            The address at the other end of the connection.
        forwarded : Sequence[str]
            The values of X-Forwarded-For: whatever the caller wrote, then what each
            proxy appended. The last address that is no stated proxy's is the caller's.
        """
        path = [part.strip() for value in forwarded for part in value.split(",")]
        address = peer
        while path and self.is_proxy(address):
            before = _without_port(path.pop())
            if _address(before) is None:
                break  # anything could be written there: it is the proxy who calls
            address = before
        return network_of(address)

    def refusal(self, network: str) -> str | None:
        """Return why a caller is not listened to; their poll counts, if it is read."""
        now = self._clock()
        if self._blame.is_blocked(network, now) or self._pace.is_blocked(network, now):
            return TOO_FAST
        self._pace.add(network, now)
        return None

    def hold_against(self, network: str) -> None:
        """Note something that no honest visitor's client does."""
        self._blame.add(network, self._clock())

    def note(self, network: str, result: PollResult) -> None:
        """Hold a poll against its network that no honest visitor sends."""
        if result.blamed:
            self.hold_against(network)
