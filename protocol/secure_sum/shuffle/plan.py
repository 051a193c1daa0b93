"""What the nodes of a cohort send through a shuffler, from its public description."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate

from wallflower.protocol.errors import InputError, MalformedMessageError
from wallflower.protocol.identity.canonical import digest
from wallflower.protocol.noise.bits import BitSource, uniform_integer
from wallflower.protocol.noise.radix import RadixPlan, certified_tables, distance_bits
from wallflower.protocol.secure_sum.shuffle import mixing
from wallflower.protocol.secure_sum.shuffle.seals import HYBRID, PLAIN, sealed_bytes
from wallflower.protocol.secure_sum.threat import Threat, least_contributors
from wallflower.protocol.wire.cohort_pb2 import CohortSpec, Rational

# --- Writing integers in radix-2 messages, reading the sum of a shuffled batch.
#
# A message is a number below 2L: twice the level, plus the bit.


def write_digits(value: int, plan: RadixPlan, bits: BitSource) -> list[int]:
    """Draw a party's messages for its integer; in order, so shuffle before sending.

    On every level both laws are drawn from and a number to go on with, and one of them
    is used: what is drawn, and how much of it, does not tell of junk.
    """
    if not 0 <= value < plan.modulus:
        raise InputError("value", "outside the range", f"0 … 2^{plan.levels} − 1")
    tables, messages = certified_tables(plan), list[int]()
    sums = [list(accumulate(law)) for law in (tables.even, tables.odd)]
    junk_sums = list(accumulate(tables.any_parity))
    for level in range(plan.levels):
        above = 1 << (plan.levels - level - 1)
        is_junk = uniform_integer(tables.whole, bits) < tables.junk
        fitting = bisect_right(sums[value & 1], uniform_integer(tables.whole, bits))
        any_number = bisect_right(junk_sums, uniform_integer(tables.whole, bits))
        anything = uniform_integer(above, bits)
        ones = any_number if is_junk else fitting
        value = anything if is_junk else (value - ones) // 2 % above
        messages += [2 * level + 1] * ones
        messages += [2 * level] * (plan.width - ones)
    return messages


def read_digits(shuffled: Iterable[int], contributors: int, plan: RadixPlan) -> int:
    """Return Σ 2^l K_l mod 2^L of the messages of so many parties.

    Raises
    ------
    MalformedMessageError
        If the shuffled batch has not exactly d messages of each level a party. Whose
        fault it is cannot be known; no sum can be believed.
    """
    counts = [0] * (2 * plan.levels)
    for message in shuffled:
        if not 0 <= message < len(counts):
            raise MalformedMessageError(f"a message of no level among {plan.levels}")
        counts[message] += 1
    total, expected = 0, plan.width * contributors
    for level in range(plan.levels):
        zeros, ones = counts[2 * level], counts[2 * level + 1]
        if zeros + ones != expected:
            raise MalformedMessageError(
                f"level {level} has {zeros + ones} messages; {contributors} parties "
                f"send {expected}"
            )
        total += ones << level
    return total % plan.modulus


PURE = "pure"
MIXED = "mixed"
SHUFFLES = (PURE, MIXED)
SHUFFLER = (
    "@shuffler"  # whom the server asks for a shuffled batch; no node is called so
)
_PURE_MECHANISM = "shuffle-dp"


def mode_of(mechanism: str) -> str:
    """Name how sums of a mechanism are shuffled; only `shuffle-dp` pays for pure."""
    return PURE if mechanism == _PURE_MECHANISM else MIXED


@dataclass(frozen=True, slots=True)
class ShufflePlan:
    """How a node's integer becomes messages and a shuffled batch becomes the sum.

    Attributes
    ----------
    modulus : a power of two.
    messages : of each node.
    body_bytes : of each message, before it is sealed.
    seal : how each is sealed to the server. The hybrid costs 1,136 bytes a message:
        a dozen of them are affordable, two thousand are not.
    least : nodes that must be in a shuffled batch.
    radix : the randomizer of the pure mode, None where integers are split and mixed.
    """

    modulus: int
    messages: int
    body_bytes: int
    seal: str
    least: int
    radix: RadixPlan | None

    @classmethod
    def of(cls, spec: CohortSpec, nodes: int) -> ShufflePlan:
        """Derive it; server, nodes and shuffler do so each for itself."""
        modulus, threat = spec.modulus, Threat.from_wire(spec.threat)
        if modulus < 2 or modulus & (modulus - 1):
            raise InputError("modulus", modulus, "a power of two, to be shuffled")
        least = least_contributors(threat, nodes)
        if mode_of(spec.mechanism) == PURE:
            radix = RadixPlan.of_cohort(
                spec.cohort_size,
                modulus,
                _fraction(spec.epsilon),
                _fraction(spec.wrap_probability),
            )
            return cls(modulus, radix.messages, 1, seal=PLAIN, least=least, radix=radix)
        # Who colludes or is absent does not mix; fewer than this are not released.
        corrupt = threat.corrupt_nodes(nodes)
        honest = max(2, nodes - corrupt - threat.dropped_nodes(nodes))
        bits = distance_bits(_fraction(spec.epsilon))
        shares = mixing.shares_for(honest, modulus, bits)
        length = mixing.share_bytes(modulus)
        least = max(least, min(nodes, honest + corrupt))
        return cls(modulus, shares, length, seal=HYBRID, least=least, radix=None)

    @property
    def message_bytes(self) -> int:
        """Length of each sealed message."""
        return sealed_bytes(self.seal, self.body_bytes)

    @property
    def batch_bytes(self) -> int:
        """Length of all of a node's sealed messages."""
        return self.messages * self.message_bytes

    def write(self, value: int, bits: BitSource) -> list[bytes]:
        """Return the messages of a node."""
        if self.radix is not None:
            numbers = write_digits(value, self.radix, bits)
        else:
            numbers = mixing.split(value, self.messages, self.modulus, bits)
        return [number.to_bytes(self.body_bytes, "big") for number in numbers]

    def read(self, bodies: Iterable[bytes], contributors: int) -> int:
        """Return the sum of so many nodes' messages, or raise MalformedMessageError."""
        numbers = (int.from_bytes(body, "big") for body in bodies)
        if self.radix is not None:
            return read_digits(numbers, contributors, self.radix)
        return mixing.join(numbers, contributors * self.messages, self.modulus)


def _fraction(value: Rational) -> Fraction:
    return Fraction(value.numerator, value.denominator or 1)


def are_names_told(spec: CohortSpec) -> bool:
    """Return whether the shuffler is told whose each batch is: where it must check
    that.

    A server that may lie could bring its own batches around one node's. One that is
    believed keeps the names to itself, so that nobody alone has a name with a message.
    """
    return spec.threat.malicious_server


def unnamed_info(context: bytes, sealing_key: bytes) -> bytes:
    """Bind a batch to its cohort and the key of its messages, and to nobody."""
    return digest("wallflower/v1/shuffled-unnamed-batch", context, sealing_key)


def batch_info(context: bytes, party: str, users: int, sealing_key: bytes) -> bytes:
    """Bind a node's batch to its cohort, name, users, and the key of its messages.

    The key, because a server that gave one node a key of its own would know that
    node's messages in the shuffled batch by what opens them.
    """
    return digest("wallflower/v1/shuffled-batch", context, party, users, sealing_key)


def batch_statement(info: bytes, sealed: bytes) -> bytes:
    """Return the bytes a node signs: this batch, for this cohort, is mine."""
    return digest("wallflower/v1/shuffled-batch-signature", info, sealed)
