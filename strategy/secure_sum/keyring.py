"""What the server remembers for a whole run."""

from __future__ import annotations

import math
from collections.abc import Collection
from functools import cached_property

from wallflower.protocol.secure_sum.context import context_of
from wallflower.protocol.secure_sum.sealed import feldman
from wallflower.protocol.secure_sum.sealed.committee import (
    committee_digest,
    read_committee,
    read_statement,
)
from wallflower.protocol.secure_sum.sealed.dealing import Terms, dealing_name
from wallflower.protocol.secure_sum.sealed.group import Point
from wallflower.protocol.secure_sum.sealed.sizes import (
    as_withstood,
    dealing_sizes,
    first_asked,
)
from wallflower.protocol.secure_sum.threat import Threat
from wallflower.protocol.wire.sealed_pb2 import (
    DealingEvidence,
    DealingNote,
    DealingState,
)

# --- A dealing that is done, as the server keeps it for the run: public in every part.


class SharedKey:
    """The key of a run and who can use it.

    Members that failed to open a sum are noted; when those left could not stand the
    stated dropout any more, the run needs a new dealing.
    """

    def __init__(self, state: DealingState, terms: Terms | None = None) -> None:
        self.state = state
        self.dealing_id = state.spec.cohort_id
        self.threat = Threat.from_wire(state.spec.threat)
        self.terms = terms if terms is not None else _terms_of(state, self.threat)
        self.threshold = self.terms.threshold
        self._commitments = feldman.read_commitments(state.commitments, self.threshold)
        self.public = self._commitments[0]
        statements = [read_statement(one, self.terms, None) for one in state.accepted]
        self.name = dealing_name(
            self.terms, {one.dealer: one.digest(self.terms) for one in statements}
        )
        self.dealers = tuple(sorted(one.dealer for one in statements))
        holders = read_committee(state.committee)
        listed = frozenset(state.members)
        self.places = {one.party: one.place for one in holders if one.party in listed}
        self._keys: dict[str, Point] = {}
        self._failed: set[str] = set()

    def __repr__(self) -> str:
        return f"DealtKey({self.dealing_id!r}, members={len(self.places)})"

    @property
    def members(self) -> tuple[str, ...]:
        """Who holds a share, in the order of their places."""
        return tuple(sorted(self.places, key=lambda party: self.places[party]))

    @cached_property
    def asked_first(self) -> int:
        """How many members a sum is put to before the others are needed."""
        return first_asked(len(self.places), self.threshold, self.threat.dropout)

    def by_promise(self) -> list[str]:
        """Name the members, those last that failed to open a sum."""
        return sorted(self.members, key=lambda member: member in self._failed)

    def key_of(self, member: str) -> Point:
        """V_i = s_i·G, from the commitments; remembered."""
        if member not in self._keys:
            place = self.places[member]
            self._keys[member] = feldman.share_point(self._commitments, place)
        return self._keys[member]

    @cached_property
    def note(self) -> DealingNote:
        """What a node is told that seals under this key."""
        return DealingNote(
            name=self.name, key=bytes(self.public), evidence=self._evidence()
        )

    def note_opened(self, member: str) -> None:
        """Note that a member opened a sum."""
        self._failed.discard(member)

    def note_failed(self, member: str) -> None:
        """Note that a member could not be used."""
        self._failed.add(member)

    def usable(self, present: Collection[str] | None = None) -> bool:
        """Return whether the members left would stand the stated dropout."""
        left = [
            member
            for member in self.places
            if member not in self._failed and (present is None or member in present)
        ]
        gone = math.ceil(self.threat.dropout * len(left))
        if len(self.places) <= self.threshold:
            gone = 0  # two and three nodes tolerate no dropout anyway
        return len(left) - gone >= self.threshold

    def serves(self, nodes: int) -> bool:
        """Return whether a cohort of so many nodes may be sealed under this key."""
        dealt = self.state.roster.size
        return not self.threat.malicious_server or as_withstood(
            self.threat, dealt, nodes
        )

    def _evidence(self) -> bytes:
        if not self.threat.malicious_server:
            return b""
        return DealingEvidence(
            spec=self.state.spec,
            roster=self.state.roster,
            committee=self.state.committee,
            accepted=self.state.accepted,
        ).SerializeToString()


def _terms_of(state: DealingState, threat: Threat) -> Terms:
    note = state.roster
    context = context_of(state.spec, note.digest, note.size)
    threshold = dealing_sizes(threat, note.size).threshold
    return Terms(context, committee_digest(state.committee), threshold)


class ServerKeyring:
    """What the server remembers of a run: public keys only."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.dealt: SharedKey | None = None
        self.wary = False  # dealers were shown to deal wrongly
        self.shuffler = b""  # the public key of the run's shuffler

    def deal(self, dealt: SharedKey) -> None:
        """Seal the cohorts to come under a new key."""
        self.dealt = dealt
