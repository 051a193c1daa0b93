"""What a lying server can say, and learn, while a key is dealt.

It names any roster, seats any of the keys that it heard, and shows every member any of
the dealings that it heard, seals of others included. The messages are those of the real
server, made to believe that it heard just this.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from tests.support.machines.explore import ViolationError
from tests.support.machines.lies import History
from tests.support.machines.nodes import stage_request
from wallflower.protocol.errors import ProtocolError
from wallflower.protocol.identity.enrolment import Trust
from wallflower.protocol.secure_sum.backends import CHECK, DEAL, ENLIST
from wallflower.protocol.secure_sum.context import unwrap, wrap
from wallflower.protocol.secure_sum.sealed.committee import Seats
from wallflower.protocol.secure_sum.session import Ask
from wallflower.protocol.secure_sum.threat import Threat
from wallflower.protocol.wire.cohort_pb2 import CohortSpec
from wallflower.protocol.wire.sealed_pb2 import (
    CheckAnswer,
    CheckRequest,
    DealingProgress,
    DealtCommittee,
    MemberKey,
)
from wallflower.protocol.wire.secure_sum_pb2 import Roster, Stage
from wallflower.protocol.wire.sum_state_pb2 import ServerState
from wallflower.strategy.secure_sum import ServerKeyring, restore_session

SHOWN = "no share of an honest dealer is shown"


@dataclass(frozen=True)
class DealingLiar:
    """A server that deals keys among `rosters`, under each of the descriptions."""

    names: Sequence[str]
    specs: Sequence[CohortSpec]
    rosters: Sequence[tuple[str, ...]]
    trust: Trust | None

    def messages(self, heard: Iterable[History]) -> Mapping[str, Iterable[bytes]]:
        """Return every request of every stage."""
        replies = list(heard)
        made: dict[str, list[bytes]] = {name: [] for name in self.names}
        for spec, roster in itertools.product(self.specs, self.rosters):
            for messages in self._stages(spec, roster, replies):
                for name, message in messages.items():
                    made[name].append(stage_request(spec, (), message))
        return made

    def judge(self, heard: Iterable[History]) -> None:
        """Refuse a complaint: every dealer here deals rightly."""
        for one in heard:
            if one.number == CHECK:
                for complaint in CheckAnswer.FromString(one.payload).complaints:
                    raise ViolationError(SHOWN, f"{one.party} about {complaint.dealer}")

    def _stages(
        self, spec: CohortSpec, roster: Sequence[str], replies: Sequence[History]
    ) -> Iterator[Mapping[str, bytes]]:
        opened = ServerState(spec=spec, stage="STAGE_ENLIST", awaited=roster)
        opened.roster.CopyFrom(Roster(parties=sorted(roster), users=[1] * len(roster)))
        first = self._asked(opened)
        yield first
        context = unwrap(next(iter(first.values()))).context
        places = Seats.drawn(
            context, Threat.from_wire(spec.threat), dict.fromkeys(roster, 1)
        ).places
        keys = [
            [
                None,
                *(one for one in replies if (one.party, one.number) == (name, ENLIST)),
            ]
            for name in places
        ]
        for chosen in itertools.product(*keys):
            seated = [one for one in chosen if one is not None]
            if seated:
                yield from self._committee(opened, places, seated, replies)

    def _committee(
        self,
        state: ServerState,
        places: Mapping[str, int],
        seated: Sequence[History],
        replies: Sequence[History],
    ) -> Iterator[Mapping[str, bytes]]:
        """Ask a committee to deal, and show it every set of dealings."""
        members = [one.party for one in seated]
        body = DealtCommittee(
            members=members,
            places=[places[member] for member in members],
            keys=[MemberKey.FromString(one.payload) for one in seated],
        ).SerializeToString(deterministic=True)
        yield self._staged(state, DEAL, members, body, {})
        dealt = [
            [
                None,
                *(one for one in replies if (one.party, one.number) == (name, DEAL)),
            ]
            for name in members
        ]
        for chosen in itertools.product(*dealt):
            dealings = {one.party: one.payload for one in chosen if one is not None}
            if not dealings:
                continue
            try:
                messages = self._staged(state, CHECK, members, body, dealings)
            except (ProtocolError, ValueError):
                continue  # of another committee's size: it cannot be written down
            yield messages
            yield _swapped(messages)

    def _staged(
        self,
        state: ServerState,
        stage: int,
        members: Sequence[str],
        committee: bytes,
        dealings: Mapping[str, bytes],
    ) -> Mapping[str, bytes]:
        progress = DealingProgress(
            committee=committee, asked=members, dealings=dealings
        )
        later = ServerState()
        later.CopyFrom(state)
        later.own = progress.SerializeToString(deterministic=True)
        later.ClearField("awaited")
        later.awaited.extend(members)
        later.stage = cast(Stage, stage)
        return self._asked(later)

    def _asked(self, state: ServerState) -> Mapping[str, bytes]:
        session = restore_session(
            state.SerializeToString(deterministic=True),
            trust=self.trust,
            keyring=ServerKeyring(state.spec.run_id),
        )
        step = session.start()
        assert isinstance(step, Ask)
        return step.messages


def _swapped(messages: Mapping[str, bytes]) -> dict[str, bytes]:
    """Show every member the seals of another one."""
    names = list(messages)
    swapped = {}
    for name, other in zip(names, [*names[1:], names[0]], strict=True):
        own, foreign = (unwrap(messages[one]) for one in (name, other))
        request = CheckRequest.FromString(own.payload)
        for mine, theirs in zip(
            request.shares, CheckRequest.FromString(foreign.payload).shares, strict=True
        ):
            mine.sealed, mine.path = theirs.sealed, theirs.path
        payload = request.SerializeToString()
        swapped[name] = wrap(CHECK, own.context, "", name, payload)
    return swapped
