"""The nodes of the gRPC server benchmark: a process full of them, each with its own
stream.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import time
from pathlib import Path
from typing import Any

from wallflower.clients.secure_sum.keyring import ClientKeyring
from wallflower.clients.secure_sum.limits import ClientLimits
from wallflower.clients.secure_sum.machine import SessionParams
from wallflower.clients.secure_sum.opener import open_session
from wallflower.clients.transport.grpc_client import (
    ConnectionSettings,
    Invitation,
    connect_node,
)
from wallflower.protocol.errors import ProtocolError, RefusalError
from wallflower.protocol.identity.enrolment import EnrolmentKey, NodeIdentity, Trust
from wallflower.protocol.identity.tokens import RunToken
from wallflower.protocol.secure_sum.backends import SEALED
from wallflower.protocol.secure_sum.session import ClientSession, Contribution
from wallflower.protocol.wire.cohort_pb2 import CohortSpec
from wallflower.protocol.wire.node_pb2 import CohortStage, NodeAnswer, NodeRequest

RUN = "bench"


def value_of(node_id: str, spec: CohortSpec) -> int:
    """A node's contribution, known to the benchmark so that it can check the sum.

    A sealed sum is decoded in its mechanism's window: rewards, then.
    """
    number = int(node_id.rpartition("-")[2]) * 7919 + 13
    return number % (2 if spec.backend == SEALED else spec.modulus)


class Node:
    """Answers every stage with the real client machine."""

    def __init__(self, identity: NodeIdentity, trust: Trust | None) -> None:
        self._identity = identity
        self._trust = trust
        self._keyring = ClientKeyring(RUN)
        self._sessions: dict[str, ClientSession] = {}

    async def handle(self, body: bytes) -> bytes:
        """Answer one NodeRequest."""
        answer = NodeAnswer()
        for task in NodeRequest.FromString(body).tasks:
            entry = answer.answers.add(task_id=task.task_id)
            if task.WhichOneof("kind") == "close":
                session = self._sessions.pop(task.close.cohort_id, None)
                if session is not None:
                    session.close()
                entry.closed.SetInParent()
                continue
            if task.WhichOneof("kind") == "describe":
                entry.description.users.append("user")
                continue
            try:
                entry.message = self._stage(task.stage)
            except (RefusalError, ProtocolError) as error:
                entry.refusal.code = error.code
        return answer.SerializeToString()

    def _stage(self, stage: CohortStage) -> bytes:
        spec, node_id = stage.spec, self._identity.node_id
        session = self._sessions.get(spec.cohort_id)
        if session is None:
            session = self._sessions[spec.cohort_id] = open_session(
                SessionParams(
                    spec,
                    node_id,
                    self._identity if self._trust else None,
                    self._trust,
                    ClientLimits(),
                    self._keyring,
                )
            )
        request, value = session.inspect(stage.message), None
        if request.needs_value:
            value = Contribution(value_of(node_id, spec), 1)
        return request.answer(value).body


async def main(config: dict[str, Any]) -> None:
    """Keep every node of the config connected until the run is over."""
    enrolment = EnrolmentKey.from_private_bytes(bytes.fromhex(config["enrolment"]))
    now = int(time.time())
    trust = Trust(enrolment.public_key, time.time) if config["enrolled"] else None
    settings = ConnectionSettings(handshake_s=120)

    async def one(node_id: str) -> None:
        bare = NodeIdentity.generate(node_id)
        identity = bare.enrolled(
            enrolment.issue(node_id, bare.public_key, not_after=now + 3600)
        )
        invitation = Invitation(
            config["address"],
            config["root"].encode(),
            RUN,
            RunToken.from_text(config["tokens"][node_id]),
        )
        node = Node(identity, trust)
        await connect_node(invitation, identity, node, settings=settings)

    async with asyncio.TaskGroup() as group:
        for node_id in config["nodes"]:
            group.create_task(one(node_id))


if __name__ == "__main__":
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    asyncio.run(main(json.loads(Path(sys.argv[1]).read_text())))
