"""From a cohort to what its nodes are sent, and back from what they answer."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from google.protobuf.message import DecodeError

from wallflower.protocol.errors import MalformedMessageError
from wallflower.protocol.messages.describe import DESCRIBE, describe_body
from wallflower.protocol.messages.port import Answer, NodeId, Request
from wallflower.protocol.refusals import RefusalCode
from wallflower.protocol.secure_sum.backends import stage_named
from wallflower.protocol.secure_sum.shuffle.plan import SHUFFLER
from wallflower.protocol.wire.cohort_pb2 import CohortSpec
from wallflower.protocol.wire.node_pb2 import (
    Accepted,
    CloseCohort,
    CohortStage,
    Description,
    NodeAnswer,
    NodeRequest,
    Offer,
    Task,
    TaskAnswer,
)
from wallflower.protocol.wire.node_pb2 import Refusal as WireRefusal
from wallflower.strategy.run.driver import Refusal
from wallflower.strategy.store.losses import Reported

_OFFER = "offer"
_NOT_ABLE = {
    RefusalCode.BUDGET_EXCEEDED,
    RefusalCode.USER_REPEATED,
}  # what an offer says before


class Closings:
    """Cohorts that are over, to be told to each node with its next request.

    A message of its own would cost as much as a stage, and nothing waits for it.
    """

    def __init__(self) -> None:
        self._due: defaultdict[NodeId, list[str]] = defaultdict(list)
        self._members: set[NodeId] = set()  # who has a share of a key to erase

    def add(self, cohort_id: str, nodes: Mapping[NodeId, object]) -> None:
        """Note that a cohort is over for all its nodes."""
        for node_id in nodes:
            self._due[node_id].append(cohort_id)

    def add_dealing(self, dealing_id: str, members: Iterable[NodeId]) -> None:
        """Note that a key is not needed any more: its members erase their shares."""
        for node_id in members:
            self._due[node_id].append(dealing_id)
            self._members.add(node_id)

    def tasks(self, node_id: NodeId) -> list[Task]:
        """Take what is due for a node."""
        self._members.discard(node_id)
        return [
            Task(task_id=f"close/{cohort_id}", close=CloseCohort(cohort_id=cohort_id))
            for cohort_id in self._due.pop(node_id, ())
        ]

    def requests(self, run_id: str, *, shares_only: bool = False) -> list[Request]:
        """Take everything that is due, for the end of a run.

        `shares_only`: leave out the nodes that have nothing secret to erase.
        """
        requests = []
        for node_id in list(self._members if shares_only else self._due):
            tasks = self.tasks(node_id)
            body = NodeRequest(run_id=run_id, tasks=tasks).SerializeToString()
            requests.append(
                Request(node_id, f"{run_id}/close/{tasks[0].task_id}", body)
            )
        return requests


@dataclass(slots=True)
class CohortTraffic:
    """Wraps and unwraps the messages of one cohort and counts what comes back.

    `stage` and `heard` are for progress; `refusals` counts why nodes are not in,
    `reported` keeps why users were not shown the arm. `declined` are the nodes that
    refused by their policy, `returned` those (with the reason) whose users were not
    used: the node said so before it answered a stage that takes rewards. `outdated` are
    the nodes of which people could not be asked: what they said of them holds no more.
    """

    spec: CohortSpec
    users: Mapping[NodeId, tuple[str, ...]]
    closings: Closings
    stage: str = ""
    heard: int = 0
    refusals: Counter[str] = field(default_factory=Counter)
    reported: Reported = field(default_factory=Reported)
    declined: dict[NodeId, Refusal] = field(default_factory=dict)
    returned: dict[NodeId, str] = field(default_factory=dict)
    outdated: set[NodeId] = field(default_factory=set)
    _gave: set[NodeId] = field(default_factory=set)

    def wrap(self, party: str, stage: str, message: bytes) -> Request:
        """Make the request that carries a stage's message to a node."""
        if stage != self.stage:
            self.stage, self.heard = stage, 0
        task_id = f"{self.spec.cohort_id}/{stage}"
        if party == SHUFFLER:
            return Request(party, task_id, message)
        # What is asked after the set is closed may be asked again after a restart and
        # must then be the same to the byte: nothing else rides along.
        tasks = [] if stage_named(stage).closed else self.closings.tasks(party)
        tasks.append(
            Task(
                task_id=task_id,
                stage=CohortStage(
                    spec=self.spec,
                    users=self.users.get(party, ()),  # a member may be in no cohort
                    message=message,
                ),
            )
        )
        body = NodeRequest(run_id=self.spec.run_id, tasks=tasks).SerializeToString()
        self.reported.silent.add(party)
        return Request(party, task_id, body)

    def unwrap(self, answer: Answer) -> bytes | Refusal:
        """Take the machine's message out of a node's reply."""
        self.heard += 1
        if answer.node_id == SHUFFLER:
            return answer.body
        self.reported.silent.discard(answer.node_id)
        task_id = f"{self.spec.cohort_id}/{self.stage}"
        try:
            reply = _reply(answer)
        except MalformedMessageError:
            self.refusals[MalformedMessageError.code] += 1
            raise
        for task in reply.answers:
            if task.task_id != task_id:
                continue
            users = self.users.get(answer.node_id, ())
            self.reported.hear(answer.node_id, task.lost, len(users))
            if any(one.reason in _NOT_ABLE for one in task.lost):
                self.outdated.add(answer.node_id)
            kind = task.WhichOneof("kind")
            if kind == "message":
                if stage_named(self.stage).takes_reward:
                    self._gave.add(answer.node_id)
                return task.message
            if kind == "refusal":
                return self._note_refusal(answer.node_id, _refusal(task.refusal))
        self.refusals[MalformedMessageError.code] += 1
        raise MalformedMessageError("an answer says nothing about what was asked")

    def _note_refusal(self, node_id: NodeId, refusal: Refusal) -> Refusal:
        self.refusals[refusal.code] += 1
        if refusal.code in _NOT_ABLE:
            self.outdated.add(node_id)
        if refusal.terms:
            self.declined[node_id] = refusal
        # Whoever gave an answer with rewards in it cannot say that it has not. Once the
        # set is closed everybody in it has, also where a restart made us forget who.
        closed = stage_named(self.stage).closed
        if refusal.untouched and node_id not in self._gave and not closed:
            self.returned[node_id] = refusal.code
        return refusal


def offer_requests(
    run_id: str, arms: Sequence[str], asked: Mapping[NodeId, Sequence[CohortSpec]]
) -> list[Request]:
    """Ask each node whether its users agree to these cohorts' terms."""
    written: dict[tuple[str, ...], tuple[str, bytes]] = {}  # most are asked the same
    requests = []
    for node_id, specs in asked.items():
        cohorts = tuple([spec.cohort_id for spec in specs])
        if cohorts not in written:
            written[cohorts] = _offer(run_id, arms, specs)
        requests.append(Request(node_id, *written[cohorts]))
    return requests


def _offer(
    run_id: str, arms: Sequence[str], specs: Sequence[CohortSpec]
) -> tuple[str, bytes]:
    """Return the id and the body of a request that offers some cohorts."""
    tasks = [
        Task(task_id=f"{_OFFER}/{spec.cohort_id}", offer=Offer(spec=spec, arms=arms))
        for spec in specs
    ]
    body = NodeRequest(run_id=run_id, tasks=tasks).SerializeToString()
    return f"{run_id}/{tasks[0].task_id}", body


def offer_reply(
    answer: Answer, specs: Sequence[CohortSpec]
) -> Mapping[str, Accepted | Refusal]:
    """Read what a node says to each cohort, by id; raises MalformedMessageError."""
    answers = {task.task_id: task for task in _reply(answer).answers}
    replies: dict[str, Accepted | Refusal] = {}
    for spec in specs:
        task = answers.get(f"{_OFFER}/{spec.cohort_id}", TaskAnswer())
        kind = task.WhichOneof("kind")
        if kind == "refusal":
            replies[spec.cohort_id] = _refusal(task.refusal)
        elif kind == "accepted":
            replies[spec.cohort_id] = task.accepted
        else:
            raise MalformedMessageError("a node says nothing about what was offered")
    return replies


def describe_request(run_id: str, node_id: NodeId, number: int) -> Request:
    """Ask a node who lives with it; `number` tells repeated questions apart."""
    return Request(node_id, f"{run_id}/{DESCRIBE}/{number}", describe_body(run_id))


def description_of(answer: Answer) -> Description:
    """Read a node's description; raises MalformedMessageError."""
    for task in _reply(answer).answers:
        if task.task_id == DESCRIBE and task.WhichOneof("kind") == "description":
            return task.description
    raise MalformedMessageError("a node does not describe its users")


def _reply(answer: Answer) -> NodeAnswer:
    try:
        return NodeAnswer.FromString(answer.body)
    except DecodeError:
        raise MalformedMessageError("an answer is not a NodeAnswer") from None


def _refusal(refusal: WireRefusal) -> Refusal:
    return Refusal(_plain(refusal.code[:60]), refusal.terms, refusal.untouched)


def _plain(text: str) -> str:
    """Keep a node's words from playing with the operator's terminal."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)
