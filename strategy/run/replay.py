"""Live through a record again: a fresh policy gets what the journal says, in its order.

Cohorts must be what was requested when they were invited, arms leave by the sums or by
a retirement that stands in the chain, and every round must end as the policy ends it.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from wallflower.protocol.cohort import cohort_mechanism, from_rational
from wallflower.protocol.errors import InputError
from wallflower.protocol.secure_sum.session import Finding
from wallflower.protocol.wire.cohort_pb2 import CohortSpec
from wallflower.strategy.bandit.policies import policy_for
from wallflower.strategy.bandit.policy import (
    USERS_EXHAUSTED,
    CohortRequest,
    CohortSum,
)
from wallflower.strategy.config import ExperimentConfig
from wallflower.strategy.run.analyzer import decode
from wallflower.strategy.run.drawing import (
    can_fill_round,
    can_go_on,
    find_largest_limit,
)
from wallflower.strategy.run.registry import UserRegistry
from wallflower.strategy.run.run_state import views_of
from wallflower.strategy.store.chain import Entry, limit_of
from wallflower.strategy.store.entries import (
    INVITED,
    LIMITED,
    MET,
    RETIRED,
    RETURNED,
    ROUND,
    CohortRecord,
    Met,
    Retirement,
    RoundRecord,
    SumRecord,
)
from wallflower.strategy.store.seats import SeatedRecord, SeatRecord


@dataclass(frozen=True, slots=True)
class RecordedFacts:
    """All that a journal says."""

    config: ExperimentConfig
    cohorts: Sequence[CohortRecord]
    specs: Mapping[str, CohortSpec]
    invited: Mapping[str, Mapping[str, tuple[str, ...]]]  # cohort → node → users
    rounds: Sequence[RoundRecord]
    returned: Set[tuple[str, str]]  # cohort, node: its users were not used
    blame: Mapping[str, Sequence[Finding]]
    members: Set[str]  # nodes that ever held a share of the run's keys
    keys: Mapping[int, Sequence[int]]  # round → nodes among whom keys were dealt so far
    retired: Mapping[int, Retirement]  # by arm
    meetings: Mapping[str, Mapping[str, Met]]  # by number and node
    links: Sequence[Entry]
    seated: Mapping[str, SeatedRecord]  # cohorts whose people arrived
    read_seats: Callable[[Sequence[str]], Iterator[SeatRecord]]  # of closed cohorts

    def used(self, cohort_id: str) -> Mapping[str, tuple[str, ...]]:
        """Return who was invited and not returned, by node."""
        asked = self.invited.get(cohort_id, {})
        return {n: u for n, u in asked.items() if (cohort_id, n) not in self.returned}


def decisions(evidence: RecordedFacts) -> Iterator[str]:
    """Say what in the record does not follow from what came before it."""
    replay = _Replay(evidence)
    for entry in evidence.links:
        yield from replay.step(entry)
    yield from replay.end()


class _Replay:
    """The policy as it was at one place of the chain."""

    def __init__(self, evidence: RecordedFacts) -> None:
        self._evidence = evidence
        self._policy = policy_for(evidence.config)
        self._number = 1  # of the round that is asked
        self._cohorts = {cohort.cohort_id: cohort for cohort in evidence.cohorts}
        self._rounds = {record.number: record for record in evidence.rounds}
        self._asked: defaultdict[int, list[CohortRecord]] = defaultdict(list)
        self._known: dict[str, Met] = {}  # by node
        self._returned: set[str] = set()  # cohorts
        self._people: Counter[int] = Counter()  # asked up to here, by arm
        self._requested: dict[int, CohortRequest] | None = None  # by arm, in this round
        self._steps: Mapping[str, Callable[[str], Iterator[str]]] = {
            INVITED: self._check_invited,
            RETIRED: self._check_retired,
            ROUND: self._round,
            LIMITED: self._check_limit,
            MET: self._check_met,
            RETURNED: self._gave_back,
        }

    def step(self, entry: Entry) -> Iterator[str]:
        """Take one entry of the chain."""
        take = self._steps.get(entry.kind)
        if take is not None:
            yield from take(entry.subject)

    def end(self) -> Iterator[str]:
        """Say what is left over."""
        for number in sorted(self._rounds):
            if number >= self._number:
                yield f"round {self._number} is missing"
                return
        for cohort in self._evidence.cohorts:
            if cohort.round_number >= self._number and cohort.result is not None:
                yield (
                    f"cohort {cohort.cohort_id} has a sum, but its round is not "
                    "finished"
                )

    # --- entries

    def _check_invited(self, cohort_id: str) -> Iterator[str]:
        cohort, where = self._cohorts[cohort_id], f"round {self._number}"
        if cohort.round_number != self._number:
            yield f"{where}: cohort {cohort_id} says round {cohort.round_number}"
            return
        self._asked[self._number].append(cohort)
        used = self._evidence.used(cohort_id)
        self._people[cohort.arm] += sum(map(len, used.values()))
        cohort_request = self._next_cohorts().get(cohort.arm)
        if cohort_request is None or (cohort_request.batch, cohort_request.size) != (
            cohort.batch,
            cohort.size,
        ):
            yield f"{where}: cohort {cohort_id} was not requested"
            return
        wrap = from_rational("wrap", self._evidence.specs[cohort_id].wrap_probability)
        if wrap != cohort_request.wrap_probability:
            yield f"{where}: cohort {cohort_id} has another wrap probability"

    def _next_cohorts(self) -> Mapping[int, CohortRequest]:
        """Return what the policy wants in this round, by arm."""
        if self._requested is None:
            self._requested = {
                cohort_request.arm: cohort_request
                for cohort_request in self._policy.next_cohorts()
            }
        return self._requested

    def _check_met(self, subject: str) -> Iterator[str]:
        self._known |= self._evidence.meetings[subject]
        return iter(())

    def _gave_back(self, subject: str) -> Iterator[str]:
        self._returned.add(subject)
        return iter(())

    def _check_limit(self, subject: str) -> Iterator[str]:
        """Check that the round had to be smaller, and not smaller than this."""
        number, users = limit_of(subject)
        where = f"round {self._number}: limited to {users} users"
        if number != self._number:
            yield f"{where}, but says round {number}"
        config, registry = self._evidence.config, self._registry()
        if can_fill_round(registry, config, self._policy.next_cohorts()):
            yield f"{where}, but all that was planned could be asked"
        most = find_largest_limit(registry, config, self._policy)
        if most is not None and most > users:
            yield f"{where}, but {most} may be asked"
        self._policy.limit(users)
        self._requested = None

    def _check_retired(self, subject: str) -> Iterator[str]:
        record = self._evidence.retired[int(subject)]
        where = f"arm {record.arm} was retired by hand"
        if record.round_number != self._number:
            yield f"{where} before round {self._number}, not {record.round_number}"
        self._requested = None
        try:
            self._policy.retire(record.arm, record.reason)
        except InputError as error:
            yield f"{where}, which could not be: {error}"

    def _round(self, subject: str) -> Iterator[str]:
        """Replay one round on the policy and compare everything it says."""
        if int(subject) != self._number or self._number not in self._rounds:
            yield f"round {self._number} is missing"
            return
        record, policy = self._rounds[self._number], self._policy
        where = f"round {self._number}"
        if not self._asked[self._number]:
            yield f"{where}: nobody was asked in it"
        asked = {cohort.arm for cohort in self._asked[self._number]}
        for cohort_request in self._next_cohorts().values():
            if cohort_request.arm not in asked:
                yield f"{where}: nobody was asked about arm {cohort_request.arm}"
        outcomes: dict[int, CohortSum] = {}
        yield from self._sums(where, outcomes)
        self._requested = None
        if outcomes or record.finished != USERS_EXHAUSTED:
            policy.observe([outcomes[arm] for arm in sorted(outcomes)])
        if record.finished == USERS_EXHAUSTED and policy.finished is None:
            yield from self._somebody_left()
            policy.stop(USERS_EXHAUSTED)
        if policy.finished != record.finished:
            yield f"{where}: ends {record.finished}, the sums give {policy.finished}"
        views = [dataclasses.asdict(v) for v in views_of(policy, self._people)]
        if not agree(views, [dataclasses.asdict(v) for v in record.views]):
            yield f"{where}: bounds or eliminations do not follow from the sums"
        if not agree(policy.state(), record.policy_state):
            yield f"{where}: the policy's state does not follow from the sums"
        self._number += 1

    def _sums(self, where: str, outcomes: dict[int, CohortSum]) -> Iterator[str]:
        """Decode the round's sums anew into `outcomes`, and compare."""
        next_cohorts = self._next_cohorts()
        for cohort in self._asked[self._number]:
            if cohort.result is None:
                continue
            cohort_request = next_cohorts.get(cohort.arm)
            if cohort_request is None or cohort_request.size != cohort.size:
                yield f"{where}: the sum of cohort {cohort.cohort_id} is of no use"
                continue
            if cohort.arm in outcomes:
                yield f"{where}: arm {cohort.arm} has two sums"
            spec = self._evidence.specs[cohort.cohort_id]
            total = _recompute(spec, cohort.result)
            if total != cohort.result.total:
                yield f"{where}: cohort {cohort.cohort_id} was decoded wrongly"
            outcomes[cohort.arm] = _outcome(spec, cohort.result, total)

    def _somebody_left(self) -> Iterator[str]:
        """Say whether the users known would have sufficed for another round."""
        if can_go_on(self._registry(), self._evidence.config, self._policy):
            users = sum(met.users for met in self._known.values())
            yield (
                f"ends {USERS_EXHAUSTED}, but enough of the {users} users may be asked"
            )

    def _registry(self) -> UserRegistry:
        """Return who could be asked at this place of the chain, as far as it says."""
        registry = UserRegistry(self._evidence.config.privacy.max_participations)
        registry.restore_nodes(self._known)
        registry.mark_invited(
            (node_id, users)
            for cohorts in self._asked.values()
            for cohort in cohorts
            for node_id, users in self._evidence.invited[cohort.cohort_id].items()
            if cohort.cohort_id not in self._returned
            or (cohort.cohort_id, node_id) not in self._evidence.returned
        )
        return registry


def _recompute(spec: CohortSpec, result: SumRecord) -> int:
    """Decode the released residue; where the server noised it only that is kept."""
    if result.released is None:
        return result.total
    mechanism = cohort_mechanism(spec)
    return decode(
        result.released,
        cohort_size=mechanism.cohort_size,
        precision=mechanism.precision,
        noise_bound=mechanism.noise_bound,
        modulus=result.modulus,
    )


def _outcome(spec: CohortSpec, result: SumRecord, total: int) -> CohortSum:
    return CohortSum(
        batch=spec.batch,
        arm=spec.arm,
        cohort_size=spec.cohort_size,
        honest_floor=spec.honest_floor,
        survivors=result.survivors,
        precision=cohort_mechanism(spec).precision,
        total=total,
    )


def agree(one: Any, other: Any) -> bool:
    """Compare as the journal stores it: JSON, numbers to ten digits.

    Matrix products differ in the last digit from one processor to another, and a
    record must hold on every machine.
    """
    return _agree(json.loads(json.dumps(one)), json.loads(json.dumps(other)))


def _agree(one: Any, other: Any) -> bool:
    if {type(one), type(other)} in ({float}, {int, float}):
        return math.isclose(one, other, rel_tol=1e-10, abs_tol=1e-12)
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(
            _agree(value, other[key]) for key, value in one.items()
        )
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_agree, one, other))
    return type(one) is type(other) and bool(one == other)
