"""What a lying server can say, and learn, where sums are sealed.

It lets every node seal for any description and roster, and puts to members every set
that can be made of the contributions it heard, whatever cohort they were made for.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tests.support.machines.explore import ViolationError
from tests.support.machines.faults import ONCE, QUORUM, TWICE
from tests.support.machines.lies import History
from tests.support.machines.nodes import stage_request
from wallflower.protocol.secure_sum.backends import OPEN, SEAL
from wallflower.protocol.secure_sum.context import (
    context_of,
    roster_bytes,
    roster_digest,
    wrap,
)
from wallflower.protocol.secure_sum.sealed.group import Point, total
from wallflower.protocol.wire.cohort_pb2 import CohortSpec
from wallflower.protocol.wire.sealed_pb2 import OpenRequest, SealAnswer, SealRequest
from wallflower.protocol.wire.secure_sum_pb2 import RosterNote
from wallflower.strategy.secure_sum.keyring import SharedKey

Contributions = tuple[tuple[str, SealAnswer], ...]


@dataclass
class SealedLiar:
    """A server that seals and opens as it likes, with one key.

    `specs` are the descriptions that it tells, `rosters` the nodes that it names.
    """

    key: SharedKey
    users: Mapping[str, str]
    specs: Sequence[CohortSpec]
    rosters: Sequence[Sequence[str]]
    _made: dict[frozenset[bytes], dict[str, list[bytes]]] = field(default_factory=dict)

    def messages(self, heard: Iterable[History]) -> Mapping[str, Iterable[bytes]]:
        """Return every request for a contribution and every request to open."""
        sealed = [one for one in heard if one.number == SEAL]
        known = frozenset(one.answer for one in sealed)
        if known not in self._made:
            made: dict[str, list[bytes]] = {name: [] for name in self.users}
            for spec, roster in itertools.product(self.specs, self.rosters):
                self._add(made, sealed, spec, roster)
            self._made[known] = made
        return self._made[known]

    def judge(self, heard: Iterable[History]) -> None:
        """Refuse two sums of a cohort, one below its quorum, a person in two."""
        replies = list(heard)
        made_by = {
            SealAnswer.FromString(one.payload).one: one
            for one in replies
            if one.number == SEAL
        }
        given: dict[tuple[str, bytes, bytes], tuple[History, set[str]]] = {}
        for one in replies:
            if one.number == OPEN:
                request = OpenRequest.FromString(one.asked)
                place = one.spec.cohort_id, one.context, request.sum
                given.setdefault(place, (one, set()))[1].add(one.party)
        summed: dict[str, str] = {}
        for (cohort, _, _), (opening, members) in given.items():
            if len(members) < self.key.threshold:
                continue
            if cohort in summed.values():
                raise ViolationError(ONCE, f"{cohort} is opened a second time")
            people = self._people(opening, made_by)
            if len(people) < opening.spec.quorum:
                raise ViolationError(QUORUM, f"{cohort} is opened for {len(people)}")
            for person in people:
                if person in summed:
                    raise ViolationError(TWICE, f"{person}: {summed[person]}, {cohort}")
                summed[person] = cohort

    @staticmethod
    def _people(opening: History, made_by: Mapping[bytes, History]) -> list[str]:
        request = OpenRequest.FromString(opening.asked)
        sources = [made_by[one.one] for one in request.sealed]
        return [user for source in sources for user in source.stage.users]

    def _add(
        self,
        made: dict[str, list[bytes]],
        sealed: Sequence[History],
        spec: CohortSpec,
        roster: Sequence[str],
    ) -> None:
        body = roster_bytes(dict.fromkeys(roster, 1))
        note = RosterNote(digest=roster_digest(body), size=len(roster), roster=body)
        context = context_of(spec, note.digest, note.size)
        request = SealRequest(roster=note, dealing=self.key.note)
        payload = request.SerializeToString()
        for name, user in self.users.items():
            message = wrap(SEAL, context, "", name, payload)
            made[name].append(stage_request(spec, (user,), message))
        for opening in self._openings(sealed, note, roster):
            payload = opening.SerializeToString()
            for member in self.key.places:
                message = wrap(OPEN, context, "", member, payload)
                made[member].append(stage_request(spec, (), message))

    def _openings(
        self, sealed: Sequence[History], note: RosterNote, roster: Sequence[str]
    ) -> Iterator[OpenRequest]:
        """Choose of every node nothing or one of its contributions, wherever from."""
        choices = [
            [None, *(one for one in sealed if one.party == name)] for name in roster
        ]
        for chosen in itertools.product(*choices):
            parts: Contributions = tuple(
                (one.party, SealAnswer.FromString(one.payload))
                for one in chosen
                if one is not None
            )
            if not parts:
                continue
            yield self._opening(note, parts, sum(part.users for _, part in parts))
            if len(parts) < len(roster):
                yield self._opening(note, parts, len(roster))

    def _opening(
        self, note: RosterNote, parts: Contributions, users: int
    ) -> OpenRequest:
        return OpenRequest(
            roster=note,
            dealing_id=self.key.dealing_id,
            dealing=self.key.name,
            dealers=self.key.dealers,
            contributors=len(parts),
            users=users,
            sum=bytes(total([Point.parse(part.one) for _, part in parts])),
            senders=[name for name, _ in parts],
            sealed=[part for _, part in parts],
        )
