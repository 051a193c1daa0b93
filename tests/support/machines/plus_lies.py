"""What a lying server can say, and learn, in secagg-plus.

In every stage it names any roster, sharers or survivors, hands on keys, sealed shares
and signatures of any cohort, and asks for either kind of share of every neighbour.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

from tests.support.machines.explore import ViolationError
from tests.support.machines.faults import ONCE, QUORUM, TWICE
from tests.support.machines.lies import History
from tests.support.machines.nodes import stage_request
from wallflower.protocol.secure_sum.backends import (
    ADVERTISE,
    CONFIRM,
    MASK,
    SHARE,
    UNMASK,
)
from wallflower.protocol.secure_sum.context import (
    context_of,
    draw_order,
    roster_bytes,
    roster_digest,
    wrap,
)
from wallflower.protocol.secure_sum.keys import split
from wallflower.protocol.secure_sum.secagg_plus import (
    PLUS_SEAL_BYTES,
    ring_neighbours,
    summarize_survivors,
)
from wallflower.protocol.secure_sum.threat import Sizes, Threat, graph_size
from wallflower.protocol.wire.cohort_pb2 import CohortSpec
from wallflower.protocol.wire.secure_sum_pb2 import (
    AdvertiseRequest,
    ConfirmAnswer,
    ConfirmRequest,
    MaskRequest,
    PartyKey,
    RosterNote,
    ShareAnswer,
    ShareRequest,
    UnmaskAnswer,
    UnmaskRequest,
)

Item = TypeVar("Item")


@dataclass(frozen=True)
class Circle:
    """One description with one roster: what every message of it is bound to."""

    spec: CohortSpec
    roster: tuple[str, ...]

    @cached_property
    def note(self) -> RosterNote:
        """The roster as nodes are told."""
        body = roster_bytes(dict.fromkeys(self.roster, 1))
        digest = roster_digest(body)
        return RosterNote(digest=digest, size=len(self.roster), roster=body)

    @cached_property
    def context(self) -> bytes:
        """What its messages carry."""
        return context_of(self.spec, self.note.digest, self.note.size)

    @cached_property
    def threshold(self) -> int:
        """Shares that give a secret."""
        return self._sizes.threshold

    @cached_property
    def neighbours(self) -> Mapping[str, list[str]]:
        """Every node's neighbours in the order that was drawn."""
        order = draw_order(self.context, list(self.roster))
        degree = self._sizes.helpers
        return {
            name: ring_neighbours(order, place, degree)
            for place, name in enumerate(order)
        }

    @property
    def _sizes(self) -> Sizes:
        return graph_size(Threat.from_wire(self.spec.threat), len(self.roster))

    def request(self, stage: int, name: str, user: str, payload: bytes) -> bytes:
        """Write the request of a stage for a node."""
        message = wrap(stage, self.context, "", name, payload)
        return stage_request(self.spec, (user,), message)


@dataclass
class PlusLiar:
    """A server that says anything about who is there.

    `specs` are the descriptions that it tells, `rosters` the nodes that it names;
    with `garbled` it also hands on shares that were sealed for somebody else.
    """

    users: Mapping[str, str]
    specs: Sequence[CohortSpec]
    rosters: Sequence[tuple[str, ...]]
    garbled: bool = True
    _circles: list[Circle] = field(init=False)

    def __post_init__(self) -> None:
        self._circles = [
            Circle(spec, roster)
            for spec, roster in itertools.product(self.specs, self.rosters)
        ]

    def messages(self, heard: Iterable[History]) -> Mapping[str, Iterable[bytes]]:
        """Return every request of every stage."""
        replies = list(heard)
        return {name: list(self._requests(name, replies)) for name in self.users}

    def _requests(self, name: str, replies: Sequence[History]) -> Iterator[bytes]:
        user = self.users[name]
        for circle in self._circles:
            if name not in circle.roster:
                continue
            request = AdvertiseRequest(invited=circle.note)
            payload = request.SerializeToString()
            yield circle.request(ADVERTISE, name, user, payload)
            for stage, made in (
                (SHARE, self._shares(circle, name, replies)),
                (MASK, self._masks(circle, name, replies)),
                (CONFIRM, self._confirms(circle, name, replies)),
                (UNMASK, self._unmasks(circle, name, replies)),
            ):
                for message in made:
                    payload = message.SerializeToString()
                    yield circle.request(stage, name, user, payload)

    def _shares(
        self, circle: Circle, name: str, replies: Sequence[History]
    ) -> Iterator[ShareRequest]:
        neighbours = circle.neighbours[name]
        keys = [
            [
                PartyKey.FromString(one.payload)
                for one in replies
                if one.party == party and one.number == ADVERTISE
            ]
            for party in (name, *neighbours)
        ]
        for own, *chosen in itertools.product(*keys):
            yield ShareRequest(
                roster=circle.note,
                neighbours=neighbours,
                keys=chosen,
                own_mask_key=own.mask_key,
            )

    def _masks(
        self, circle: Circle, name: str, replies: Sequence[History]
    ) -> Iterator[MaskRequest]:
        neighbours = circle.neighbours[name]
        for sharers in _subsets(circle.roster):
            senders = [place for place, p in enumerate(neighbours) if p in sharers]
            choices = [
                list(self._uploads(neighbours[place], name, replies))
                for place in senders
            ]
            for chosen in itertools.product(*choices):
                yield MaskRequest(
                    sharers=summarize_survivors(dict.fromkeys(sharers, 1), listed=True),
                    senders=senders,
                    salts=b"".join(salt for salt, _ in chosen),
                    users=[1] * len(senders),
                    sealed=b"".join(seal for _, seal in chosen),
                )

    def _uploads(
        self, sender: str, name: str, replies: Sequence[History]
    ) -> Iterator[tuple[bytes, bytes]]:
        """Return what a sender sealed for a node, and with `garbled` for another."""
        for one in replies:
            if one.party != sender or one.number != SHARE:
                continue
            neighbours = list(ShareRequest.FromString(one.asked).neighbours)
            if name not in neighbours:  # nothing was sealed for it
                continue
            answer = ShareAnswer.FromString(one.payload)
            seals = split(answer.sealed, len(neighbours), PLUS_SEAL_BYTES)
            place = neighbours.index(name)
            yield answer.salt, seals[place]
            if self.garbled and len(seals) > 1:
                yield answer.salt, seals[place - 1]

    def _confirms(
        self, circle: Circle, name: str, replies: Sequence[History]
    ) -> Iterator[ConfirmRequest]:
        if any(one.party == name and one.number == MASK for one in replies):
            for survivors in _subsets(circle.roster):
                survivor_set = summarize_survivors(
                    dict.fromkeys(survivors, 1), listed=True
                )
                yield ConfirmRequest(survivors=survivor_set)

    def _unmasks(
        self, circle: Circle, name: str, replies: Sequence[History]
    ) -> Iterator[UnmaskRequest]:
        neighbours = circle.neighbours[name]
        signatures: dict[str, list[tuple[bytes, bytes]]] = {}
        for one in replies:
            if one.number == CONFIRM:
                signature = ConfirmAnswer.FromString(one.payload).signature
                about = ConfirmRequest.FromString(one.asked).survivors.roster
                signatures.setdefault(one.party, []).append((about, signature))
        for one in replies:
            if (one.party, one.number, one.context) != (name, MASK, circle.context):
                continue
            senders = list(MaskRequest.FromString(one.asked).senders)
            for survivors in _subsets(circle.roster):
                for present in _subsets(senders):
                    yield from _unmask(
                        survivors, present, senders, neighbours, signatures
                    )

    def judge(self, heard: Iterable[History]) -> None:
        """Refuse two sums of a cohort, one below its quorum, a person in two."""
        replies, summed = list(heard), dict[str, str]()
        for circle in self._circles:
            mine = [one for one in replies if one.context == circle.context]
            opened = _openable(circle, mine)
            cohort = circle.spec.cohort_id
            for people in opened:
                if len(people) < circle.spec.quorum:
                    raise ViolationError(QUORUM, f"{cohort} is opened for {people}")
            if len(opened) > 1 or (opened and cohort in summed.values()):
                raise ViolationError(ONCE, f"{cohort} is opened for {opened}")
            for name in itertools.chain(*opened):
                if name in summed:
                    raise ViolationError(TWICE, f"{name}: {summed[name]}, {cohort}")
                summed[name] = cohort


def _unmask(
    survivors: tuple[str, ...],
    present: tuple[int, ...],
    senders: Sequence[int],
    neighbours: Sequence[str],
    signatures: Mapping[str, Sequence[tuple[bytes, bytes]]],
) -> Iterator[UnmaskRequest]:
    """Ask for shares with the signatures about this set, and with any others."""
    survivor_set = summarize_survivors(dict.fromkeys(survivors, 1), listed=True)
    given = {place: signatures.get(neighbours[place], ()) for place in present}
    fitting = {
        place: signature
        for place, pairs in given.items()
        for about, signature in pairs
        if about == survivor_set.roster
    }
    whatever = {place: pairs[0][1] for place, pairs in given.items() if pairs}
    others = [place for place in senders if place not in present]
    signed = (fitting, whatever) if fitting != whatever else (fitting,)
    for chosen, dropped in itertools.product(signed, (others, senders)):
        yield UnmaskRequest(
            survivors=survivor_set,
            present=present,
            dropped=dropped,
            confirmed=list(chosen),
            signatures=list(chosen.values()),
        )


def _openable(circle: Circle, replies: Sequence[History]) -> list[tuple[str, ...]]:
    """Return every set whose sum follows from masked values and shares.

    A set is opened where every own seed in it is known and every pair mask either
    cancels inside the set or follows from the mask key of one of the two.
    """
    masked: dict[str, set[str]] = {}
    seeds: dict[str, set[str]] = {}
    keys: dict[str, set[str]] = {}
    for one in replies:
        neighbours = circle.neighbours[one.party]
        if one.number == MASK:
            senders = MaskRequest.FromString(one.asked).senders
            masked[one.party] = {neighbours[place] for place in senders}
        elif one.number == UNMASK:
            request = UnmaskRequest.FromString(one.asked)
            answer = UnmaskAnswer.FromString(one.payload)
            for places, shares, known in (
                (request.present, answer.self_shares, seeds),
                (request.dropped, answer.mask_shares, keys),
            ):
                for place, share in zip(places, shares, strict=True):
                    if share:
                        known.setdefault(neighbours[place], set()).add(one.party)
    bare = {name for name in keys if len(keys[name]) >= circle.threshold}
    seeded = {name for name in seeds if len(seeds[name]) >= circle.threshold}

    def opens(people: tuple[str, ...]) -> bool:
        return set(people) <= seeded and all(
            (other in people and name in masked.get(other, ()))
            or name in bare
            or other in bare
            for name in people
            for other in masked[name]
        )

    return [people for people in _subsets(tuple(masked)) if opens(people)]


def _subsets(items: Sequence[Item]) -> Iterator[tuple[Item, ...]]:
    """Return every subset that is not empty."""
    for size in range(1, len(items) + 1):
        yield from itertools.combinations(items, size)
