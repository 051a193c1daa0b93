"""A node: answers requests for its users, on their terms.

Order of business for every stage of a cohort: policy, then session; and for the stage
that needs the users' value: ledger, then rewards, then randomizer, then the secure sum.
Nobody is shown an arm before their spend is on disk, and everybody who is shown one is
in the sum. One node answers many cohorts at once; a slow reward holds up only its own.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from google.protobuf.message import DecodeError

from wallflower.clients.consent import ClientPolicy, check_range, check_window
from wallflower.clients.node.randomizer import Randomize
from wallflower.clients.node.sessions import MemorySessions, Sessions
from wallflower.clients.node.spends import (
    NodeLedger,
    OneTimeAnswer,
    Spend,
    cohort_repeated,
    make_spend,
    select_able_users,
)
from wallflower.clients.rewards.ready import refuse_while_down
from wallflower.clients.rewards.source import Doubles, Pull, Rewards, pull_rewards
from wallflower.protocol.errors import (
    InputError,
    MalformedMessageError,
    ProtocolError,
    RefusalError,
    TermsError,
    UnavailableError,
    WallflowerError,
)
from wallflower.protocol.identity.canonical import digest
from wallflower.protocol.messages.describe import mark_users, pack_left_out
from wallflower.protocol.privacy.mechanism import CohortMechanism
from wallflower.protocol.refusals import RefusalCode
from wallflower.protocol.rewards.outcome_window import NO_WINDOW, OutcomeWindow
from wallflower.protocol.rewards.reward_range import DEFAULT_RANGE, RewardRange
from wallflower.protocol.secure_sum.backends import MOST_USERS
from wallflower.protocol.secure_sum.sealed.committee import is_dealing
from wallflower.protocol.secure_sum.session import (
    ClientSession,
    Contribution,
    InspectedRequest,
    StageAnswer,
)
from wallflower.protocol.wire.cohort_pb2 import CohortSpec
from wallflower.protocol.wire.node_pb2 import (
    Accepted,
    Closed,
    CohortStage,
    Description,
    LostUsers,
    NodeAnswer,
    NodeRequest,
    Offer,
    Refusal,
    Task,
    TaskAnswer,
)

_log = logging.getLogger(__name__)

CountOutcomes = Callable[[int, Mapping[str, int]], None]
MOST_TASKS = 10_000
MOST_OPEN_COHORTS = 10_000
MOST_REPORTED = 1_000  # cohorts of a run that a node says it answered


@dataclass(frozen=True, slots=True)
class NodeParts:
    """What a node is made of.

    `source` knows outcomes, `policy` what users agreed to, `ledger` what they spent;
    `window` says when outcomes are taken, `reward_range` how they become numbers in
    [0, 1]. `count` is told how many were shown an arm and why outcomes are not known,
    which stays on the node. `open_session` starts the client
    machine of a cohort's back-end, `check_trust` refuses a sum that the node could not
    check; `randomize` draws from the operating system, or in
    test mode from a seed. `forget` erases what a dealing left with the node, by run and
    id.
    `capacity` is the most users that the node's certificate lets it speak for.
    """

    source: Rewards
    policy: ClientPolicy
    ledger: NodeLedger
    open_session: Callable[[CohortSpec], ClientSession]
    randomize: Randomize
    check_trust: Callable[[CohortSpec], None] = lambda spec: None
    forget: Callable[[str, str], None] = lambda run_id, cohort_id: None
    window: OutcomeWindow = NO_WINDOW
    count: CountOutcomes = lambda shown, unknown: None
    reward_range: RewardRange = DEFAULT_RANGE
    capacity: int = MOST_USERS


class Node:
    """A NodeHandler: one node with its users.

    Parameters
    ----------
    node_id : str
        Stable across restarts.
    users : Sequence[str]
        Stable pseudonyms, unique on this node.
    parts : NodeParts
        Sources, policy, ledger, crypto.
    sessions : Sessions, optional
        Where open cohorts live between stages; memory by default.
    """

    def __init__(
        self,
        node_id: str,
        users: Sequence[str],
        parts: NodeParts,
        sessions: Sessions | None = None,
    ) -> None:
        self.node_id = node_id
        self.users = tuple(users)
        self.lost: Counter[str] = Counter()  # users not shown an arm, and refusals
        self.only_run: str | None = None  # of the server it is connected to
        self.polls = False  # comes to the gRPC server now and then, on no committee
        self.admission = ""  # how its people come to a run; empty: known beforehand
        self._members = frozenset(users)
        if len(self._members) != len(self.users):
            raise InputError(
                "users", f"{len(self.users)} of {node_id}", "no name twice"
            )
        self._parts = parts
        # Those beyond the node's certificate could never be in a sum.
        self._described = self.users[: parts.capacity]
        self._sessions = sessions if sessions is not None else MemorySessions()
        self._locks: dict[str, asyncio.Lock] = {}
        self._begun: set[str] = set()  # cohorts whose users were looked at

    async def handle(self, body: bytes) -> bytes:
        """Answer one NodeRequest with one NodeAnswer; see `protocol.messages.port`."""
        try:
            request = NodeRequest.FromString(body)
        except DecodeError:
            raise MalformedMessageError("a request is not a NodeRequest") from None
        if len(request.tasks) > MOST_TASKS:
            raise MalformedMessageError(f"{len(request.tasks)} tasks in one request")
        if len(request.tasks) == 1:
            answers = [await self._answer(request.run_id, request.tasks[0])]
        else:
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(self._answer(request.run_id, task))
                    for task in request.tasks
                ]
            answers = [task.result() for task in tasks]
        return NodeAnswer(answers=answers).SerializeToString()

    async def _answer(self, run_id: str, task: Task) -> TaskAnswer:
        dropped: dict[str, int] = {}
        answer = await self._dispatch(run_id, task, dropped)
        if dropped:
            self.lost.update(dropped)
            answer.lost.extend(
                LostUsers(reason=reason, users=count)
                for reason, count in sorted(dropped.items())
            )
        return answer

    async def _dispatch(
        self, run_id: str, task: Task, dropped: dict[str, int]
    ) -> TaskAnswer:
        kind = task.WhichOneof("kind")
        try:
            if self.only_run not in (None, run_id):
                raise RefusalError(
                    RefusalCode.WRONG_RUN,
                    "this connection is for another run",
                )
            if kind == "describe":
                answered = await self._parts.ledger.latest_cohorts(
                    self.node_id, run_id, MOST_REPORTED
                )
                here = Description(
                    users=self._described, polls=self.polls, answered=answered
                )
                return TaskAnswer(task_id=task.task_id, description=here)
            if kind == "offer":
                accepted = await self._accept(run_id, task.offer)
                return TaskAnswer(task_id=task.task_id, accepted=accepted)
            if kind == "stage":
                message = await self._stage(run_id, task.stage, dropped)
                return TaskAnswer(task_id=task.task_id, message=message)
            if kind == "close":
                self._sessions.drop(task.close.cohort_id)
                self._locks.pop(task.close.cohort_id, None)
                self._begun.discard(task.close.cohort_id)
                self._parts.forget(run_id, task.close.cohort_id)
                return TaskAnswer(task_id=task.task_id, closed=Closed())
            raise RefusalError(
                RefusalCode.UNKNOWN_TASK, "this node does not know such a task"
            )
        except (RefusalError, ProtocolError) as error:
            return await self._refuse(task, error, error.code)
        except (InputError, UnavailableError) as error:
            return await self._refuse(task, error, RefusalCode.NOT_POSSIBLE)

    async def _accept(self, run_id: str, offer: Offer) -> Accepted:
        """Agree to an offer and say which users cannot be asked; or refuse it."""
        spec, users = offer.spec, self._described
        _check_run(spec, run_id)
        mechanism = self._check_terms(spec)
        self._parts.policy.check_arms(offer.arms)
        self._parts.check_trust(spec)
        unable = await self._parts.ledger.prepare(self._spend(spec, mechanism, users))
        await self._check_source(spec)
        if not unable:
            return Accepted()
        left_out = pack_left_out(users, unable)
        return Accepted(left_out=left_out, users=mark_users(users))

    async def _refuse(
        self, task: Task, error: WallflowerError, code: str
    ) -> TaskAnswer:
        """Tell the server a code and nothing else; the text is for the node's log.

        It may hold amounts, paths and what was spent with other operators.
        """
        self.lost[code] += 1
        _log.info(
            "request refused: %s",
            error,
            extra={"event": "request-refused", "node_id": self.node_id, "reason": code},
        )
        refusal = Refusal(
            code=code,
            terms=isinstance(error, TermsError),
            untouched=await self._is_untouched(task),
        )
        return TaskAnswer(task_id=task.task_id, refusal=refusal)

    async def _is_untouched(self, task: Task) -> bool:
        """Say whether the cohort's users may be asked anew: nobody saw the arm.

        Not once they were looked at: what they themselves are the reason for (a spent
        budget) would come again.
        """
        spec = task.stage.spec
        if task.WhichOneof("kind") != "stage" or spec.cohort_id in self._begun:
            return False
        try:
            return not await self._parts.ledger.has_answered(
                self.node_id, spec.run_id, spec.cohort_id
            )
        except UnavailableError:
            return False

    async def _stage(
        self, run_id: str, stage: CohortStage, dropped: dict[str, int]
    ) -> bytes:
        spec = stage.spec
        _check_run(spec, run_id)
        mechanism = None
        if is_dealing(spec):
            if self.polls:
                raise RefusalError(
                    RefusalCode.NEEDS_A_STREAM, "this node only polls the gRPC server"
                )
            self._parts.policy.check_dealing(spec)
        else:
            mechanism = self._check_terms(spec)
        if spec.cohort_id not in self._locks and len(self._locks) >= MOST_OPEN_COHORTS:
            raise RefusalError(
                RefusalCode.TOO_MANY_COHORTS, "cohorts are opened but not closed"
            )
        # One stage of a cohort at a time: two copies of a request get one answer.
        lock = self._locks.setdefault(spec.cohort_id, asyncio.Lock())
        async with lock:
            session = self._sessions.get(spec.cohort_id)
            new = session is None
            if session is None:
                session = self._parts.open_session(spec)
            elif session.spec != spec:
                raise RefusalError(
                    RefusalCode.COHORT_CHANGED,
                    "the cohort's description changed between stages",
                )
            try:
                request = await self._inspect(session, stage, new=new)
                value = None
                if request.needs_value:
                    assert mechanism is not None  # a dealing takes no rewards
                    value = await self._obtain_value(request, mechanism, stage, dropped)
                answer = request.answer(value)
                await self._record_answer(stage, answer)
            except (RefusalError, ProtocolError):
                self._sessions.drop(spec.cohort_id)
                raise
            self._sessions.keep(spec.cohort_id, session)
            return answer.body

    async def _record_answer(self, stage: CohortStage, answer: StageAnswer) -> None:
        """Write down an answer that is given once, before anything of it leaves."""
        if answer.one_time_stage is not None:
            spec = stage.spec
            fingerprint = digest(
                "wallflower/v1/one-time-answer", stage.message, answer.body
            )
            await self._parts.ledger.record_answer(
                OneTimeAnswer(
                    self.node_id,
                    spec.run_id,
                    spec.cohort_id,
                    answer.one_time_stage,
                    fingerprint,
                )
            )

    async def _inspect(
        self, session: ClientSession, stage: CohortStage, *, new: bool
    ) -> InspectedRequest:
        """Check the stage's message; a cohort answered before is refused.

        Where the message needs a value, the ledger refuses it together with the rest
        (`prepare`).
        """
        try:
            request = session.inspect(stage.message)
        except (RefusalError, ProtocolError):
            if new:
                await self._check_new(stage.spec)
            raise
        if new and not request.needs_value:
            await self._check_new(stage.spec)
        return request

    async def _check_new(self, spec: CohortSpec) -> None:
        if await self._parts.ledger.has_answered(
            self.node_id, spec.run_id, spec.cohort_id
        ):
            raise cohort_repeated(spec.cohort_id)

    async def _obtain_value(
        self,
        request: InspectedRequest,
        mechanism: CohortMechanism,
        stage: CohortStage,
        dropped: dict[str, int],
    ) -> Contribution:
        """Charge the users, then show them the arm; everybody shown it is in the value.

        Those who may not be asked are counted in `dropped`, by reason. Whatever could
        keep the contribution from being sent is looked at before anybody is charged.
        """
        spec = stage.spec
        if spec.admission != self.admission:
            # Of a seat's key fewer makers are asked for than of a key for known people.
            raise RefusalError(
                RefusalCode.BAD_COHORT,
                f"people {_describe_coming(self.admission)}, in a cohort of people "
                f"{_describe_coming(spec.admission)}",
            )
        if spec.cohort_id in self._begun:
            raise RefusalError(
                RefusalCode.COHORT_REPEATED,
                "the users of this cohort were looked at before",
            )
        users = tuple(stage.users)
        spend = self._spend(spec, mechanism, users)
        # Nobody is shown an arm whose answer could not be sent.
        against = await self._parts.ledger.prepare(spend)
        await self._check_source(spec)
        self._begun.add(spec.cohort_id)
        if len(users) > self._parts.capacity:
            raise RefusalError(
                RefusalCode.BEYOND_CAPACITY,
                f"{len(users)} users; certified for {self._parts.capacity}",
            )
        users = select_able_users(users, self._members, against, dropped)
        request.check_users(len(users))
        await self._parts.ledger.spend(replace(spend, users=users))
        pulled = await pull_rewards(
            self._parts.source,
            Pull(
                run_id=spec.run_id,
                cohort_id=spec.cohort_id,
                batch=spec.batch,
                arm=spec.arm,
                arm_name=spec.arm_name,
                node_id=self.node_id,
                users=users,
            ),
            self._parts.window,
            self._parts.reward_range,
        )
        self._parts.count(len(users), pulled.reasons)
        values = await self._without_withdrawn(users, pulled.values)
        value = self._parts.randomize(spec, mechanism, users, values)
        return Contribution(value, len(users))

    async def _without_withdrawn(
        self, users: Sequence[str], values: Doubles
    ) -> Doubles:
        """Put the value of unknown outcomes in the place of those who withdrew.

        Their outcome does not leave. They stay in the count, since somebody may
        withdraw because of how it went, and the server must not learn that.
        """
        withdrawn = await self._parts.ledger.withdrawn(self.node_id)
        if withdrawn.isdisjoint(users):
            return values
        gone = [user in withdrawn for user in users]
        return np.where(gone, self._parts.window.if_unknown, values)

    def _check_terms(self, spec: CohortSpec) -> CohortMechanism:
        """Calibrate what the spec describes, or refuse it by name.

        Range and window are what users agreed to; a trustee shows nobody anything.
        """
        if self.users:
            check_range(self._parts.reward_range, spec)
            check_window(self._parts.window, spec)
        return self._parts.policy.check(spec)

    async def _check_source(self, spec: CohortSpec) -> None:
        """Refuse while the reward source is down: no reason to use users up."""
        source = self._parts.source
        await refuse_while_down(source, spec.arm, spec.arm_name, self.node_id)

    def _spend(
        self, spec: CohortSpec, mechanism: CohortMechanism, users: tuple[str, ...]
    ) -> Spend:
        return make_spend(self._parts.policy, self.node_id, spec, mechanism, users)


def _describe_coming(admission: str) -> str:
    return f"who arrive ({admission[:20]})" if admission else "known beforehand"


def _check_run(spec: CohortSpec, run_id: str) -> None:
    if spec.run_id != run_id:
        raise RefusalError(RefusalCode.WRONG_RUN, "the cohort belongs to another run")
