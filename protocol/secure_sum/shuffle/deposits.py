"""What lets a node's messages in at the shuffler, and what they are found by later.

A node takes its messages to the shuffler itself. It shows the *admission* of its
cohort, which is the same for all of its nodes and so tells nobody which of them comes.
The admission says how many nodes the cohort has and how long the messages of one are,
so that whoever has it can fill no more than the room of this cohort.
Its messages lie under a *ticket* that it drew itself, of 256 bits. To the server goes a
digest of it, the *reference*, with the node's name and number of users. The server sees
no ticket and the deposit names nobody: what the one saw and what the other saw can be
joined only while the shuffler holds the tickets.
"""

from __future__ import annotations

import hashlib
import hmac

from wallflower.protocol.identity.canonical import digest
from wallflower.protocol.wire.shuffle_pb2 import DepositHandshake

# The header of a deposit; without a fitting one nothing more is read.
GREETING = "deposit-bin"
TICKET_BYTES = 32
REFERENCE_BYTES = 32


def greeting_of(run_id: str, context: bytes, nodes: int, size: int) -> DepositHandshake:
    """Describe the deposits of a cohort; without what lets them in."""
    return DepositHandshake(
        context=context,
        run=digest("wallflower/v1/shuffler-run", run_id),
        nodes=nodes,
        batch_bytes=size,
    )


def admission(token: bytes, greeting: DepositHandshake) -> bytes:
    """Give what the operator, who holds the shuffler's token, hands to a cohort."""
    purpose = digest(
        "wallflower/v1/shuffler-admission",
        greeting.context,
        greeting.run,
        greeting.nodes,
        greeting.batch_bytes,
    )
    return hmac.digest(token, purpose, "sha256")


def deposit_info(context: bytes) -> bytes:
    """Bind a deposit to its cohort."""
    return digest("wallflower/v1/shuffler-deposit", context)


def reference(ticket: bytes, context: bytes, sealing_key: bytes) -> bytes:
    """Give what the server knows a deposit by: of this cohort and key of the messages.

    The key, because a server that gave one node a key of its own would know that
    node's messages in the heap by what opens them.
    """
    return digest("wallflower/v1/shuffler-reference", context, sealing_key, ticket)


def receipt(ticket: bytes) -> bytes:
    """Give what only who opened the deposit can answer."""
    return hashlib.sha256(b"wallflower/v1/shuffler-receipt" + ticket).digest()
