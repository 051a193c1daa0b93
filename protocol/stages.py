"""The stages of both protocols, as plain integers, and their names."""

from __future__ import annotations

from typing import Final

from protocol.wire import secure_sum_pb2 as wire

# Plain integers: looking one up in the generated enumeration costs more than a hash.
KEYS: Final[int] = int(wire.STAGE_KEYS)
CONTRIBUTE: Final[int] = int(wire.STAGE_CONTRIBUTE)
TALLY: Final[int] = int(wire.STAGE_TALLY)
ADVERTISE: Final[int] = int(wire.STAGE_ADVERTISE)
SHARE: Final[int] = int(wire.STAGE_SHARE)
MASK: Final[int] = int(wire.STAGE_MASK)
CONFIRM: Final[int] = int(wire.STAGE_CONFIRM)
UNMASK: Final[int] = int(wire.STAGE_UNMASK)

STAGE_NAMES: Final[dict[int, str]] = {
    KEYS: "keys",
    CONTRIBUTE: "contribute",
    TALLY: "tally",
    ADVERTISE: "advertise",
    SHARE: "share",
    MASK: "mask",
    CONFIRM: "confirm",
    UNMASK: "unmask",
}
