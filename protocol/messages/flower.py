"""How one NodeRequest or NodeAnswer lies inside a Flower message.

A Flower message carries one ConfigRecord, and a ConfigRecord carries plain values. Ours
holds our protobuf as one bytes value, so nothing of the protocol depends on what Flower
can express. Both sides read the names here; neither imports the other.
"""

from __future__ import annotations

from typing import Final

RECORD: Final = "wallflower"

# Message types: Flower routes ``query.<action>`` to ``@app.query("<action>")``.
HELLO: Final = "query.hello"  # what is your stable name?
WORK: Final = "query.work"  # one NodeRequest, answered by one NodeAnswer
CONNECT: Final = "query.connect"  # go to this gRPC server for the rest of the run

# Keys of the record.
NAME: Final = "name"
REQUEST_ID: Final = "request-id"
BODY: Final = "body"
RUN_ID: Final = "run-id"
ADDRESS: Final = "address"  # of the gRPC server, host:port
TOKEN: Final = "token"  # noqa: S105 (the key's name, not a token)
CERTIFICATE: Final = "certificate"  # of the authority behind the gRPC server's, PEM
REASON: Final = "reason"  # why a node left the gRPC server
RUN_OVER: Final = "run-over"  # … because there is nothing left to do


def action(message_type: str) -> str:
    """Return the name that ``@app.query`` registers for a message type.

    Examples
    --------
    >>> action(WORK)
    'work'
    """
    return message_type.partition(".")[2]
