"""From a cohort to what its nodes are sent, and back from what they answer."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from google.protobuf.message import DecodeError

from protocol.errors import MalformedMessageError
from protocol.port import Answer, NodeId, Request
from protocol.stages import stage_named
from protocol.wire.cohort_pb2 import CohortSpec
from protocol.wire.node_pb2 import (
    CloseCohort,
    CohortStage,
    Describe,
    NodeAnswer,
    NodeRequest,
    Task,
)
from strategy.losses import Reported
from strategy.sum_driver import Refusal

_DESCRIBE = "describe"


class Closings:
    """Cohorts that are over, to be told to each node with its next request.

    A message of its own would cost as much as a stage, and nothing waits for it.
    """

    def __init__(self) -> None:
        self._due: defaultdict[NodeId, list[str]] = defaultdict(list)

    def add(self, cohort_id: str, nodes: Mapping[NodeId, object]) -> None:
        """Note that a cohort is over for all its nodes."""
        for node_id in nodes:
            self._due[node_id].append(cohort_id)

    def tasks(self, node_id: NodeId) -> list[Task]:
        """Take what is due for a node."""
        return [
            Task(task_id=f"close/{cohort_id}", close=CloseCohort(cohort_id=cohort_id))
            for cohort_id in self._due.pop(node_id, ())
        ]

    def requests(self, run_id: str) -> list[Request]:
        """Take everything that is due, for the end of a run."""
        requests = []
        for node_id in list(self._due):
            tasks = self.tasks(node_id)
            body = NodeRequest(run_id=run_id, tasks=tasks).SerializeToString()
            requests.append(
                Request(node_id, f"{run_id}/close/{tasks[0].task_id}", body)
            )
        return requests


@dataclass(slots=True)
class CohortTraffic:
    """Wraps and unwraps the messages of one cohort and counts what comes back.

    `reward_timeout_s` tells nodes how long rewards are waited for. `stage` and `heard`
    are for progress; `refusals` counts why nodes are not in, `reported` keeps why their
    users are not.
    """

    spec: CohortSpec
    users: Mapping[NodeId, tuple[str, ...]]
    closings: Closings
    reward_timeout_s: float = 0.0
    stage: str = ""
    heard: int = 0
    refusals: Counter[str] = field(default_factory=Counter)
    reported: Reported = field(default_factory=Reported)

    def wrap(self, party: str, stage: str, message: bytes) -> Request:
        """Make the request that carries a stage's message to a node."""
        if stage != self.stage:
            self.stage, self.heard = stage, 0
        task_id = f"{self.spec.cohort_id}/{stage}"
        # What is asked after the set is closed may be asked again after a restart and
        # must then be the same to the byte: nothing else rides along.
        tasks = [] if stage_named(stage).closed else self.closings.tasks(party)
        tasks.append(
            Task(
                task_id=task_id,
                stage=CohortStage(
                    spec=self.spec,
                    users=self.users[party],
                    message=message,
                    reward_timeout_s=self.reward_timeout_s,
                ),
            )
        )
        body = NodeRequest(run_id=self.spec.run_id, tasks=tasks).SerializeToString()
        self.reported.silent.add(party)
        return Request(party, task_id, body)

    def unwrap(self, answer: Answer) -> bytes | Refusal:
        """Take the machine's message out of a node's reply."""
        self.heard += 1
        self.reported.silent.discard(answer.node_id)
        task_id = f"{self.spec.cohort_id}/{self.stage}"
        try:
            reply = NodeAnswer.FromString(answer.body)
        except DecodeError:
            self.refusals[MalformedMessageError.code] += 1
            raise MalformedMessageError("an answer is not a NodeAnswer") from None
        for task in reply.answers:
            if task.task_id != task_id:
                continue
            users = self.users.get(answer.node_id, ())
            self.reported.hear(answer.node_id, task, len(users))
            kind = task.WhichOneof("kind")
            if kind == "message":
                return task.message
            if kind == "refusal":
                code = task.refusal.code[:60]
                self.refusals[code] += 1
                return Refusal(code, task.refusal.detail[:300])
        self.refusals[MalformedMessageError.code] += 1
        raise MalformedMessageError("an answer says nothing about what was asked")


def describe_request(run_id: str, node_id: NodeId, number: int) -> Request:
    """Ask a node who lives with it; `number` tells repeated questions apart."""
    tasks = [Task(task_id=_DESCRIBE, describe=Describe())]
    body = NodeRequest(run_id=run_id, tasks=tasks).SerializeToString()
    return Request(node_id, f"{run_id}/{_DESCRIBE}/{number}", body)


def described_users(answer: Answer) -> tuple[str, ...]:
    """Read a node's description; raises MalformedMessageError."""
    try:
        reply = NodeAnswer.FromString(answer.body)
    except DecodeError:
        raise MalformedMessageError("an answer is not a NodeAnswer") from None
    for task in reply.answers:
        if task.task_id == _DESCRIBE and task.WhichOneof("kind") == "description":
            return tuple(task.description.users)
    raise MalformedMessageError("a node does not describe its users")
