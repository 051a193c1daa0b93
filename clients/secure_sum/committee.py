"""`committee`, a node's side: share once, and as a member add up and answer once.

A node shares its integer in ℤ_m itself among the committee, each share sealed for one
member together with the node's number of users, and is done. A member opens its seals
of the closed set, checks the set and the quorum, and gives one number. See
docs/secure-sums.md for the protocol and what each party sees.
"""

from __future__ import annotations

import secrets

from wallflower.clients.secure_sum.machine import ClientMachine, Setting
from wallflower.protocol.errors import (
    InputError,
    MalformedMessageError,
    RefusalError,
    WrongContextError,
)
from wallflower.protocol.identity.canonical import name_tag
from wallflower.protocol.secure_sum.backends import COMMITTEE
from wallflower.protocol.secure_sum.committee_seals import (
    MOST_USERS,
    SEAL_BYTES,
    committee_digest,
    open_share,
    seal_head,
    seal_share,
    split,
)
from wallflower.protocol.secure_sum.context import draw_order
from wallflower.protocol.secure_sum.envelope import parse
from wallflower.protocol.secure_sum.primes import is_prime
from wallflower.protocol.secure_sum.seals import SALT_BYTES
from wallflower.protocol.secure_sum.session import Contribution
from wallflower.protocol.secure_sum.shamir import share_integer
from wallflower.protocol.secure_sum.stages import CONTRIBUTE, KEYS, stages_of
from wallflower.protocol.secure_sum.threat import (
    Sizes,
    committee_size,
    least_contributors,
)
from wallflower.protocol.wire.secure_sum_pb2 import (
    ClosedSet,
    Committee,
    Complaint,
    ContributeAnswer,
    ContributeRequest,
    Envelope,
    KeysRequest,
    TallyAnswer,
    TallyRequest,
)


class CommitteeClient(ClientMachine):
    """A contributor, and a member if drawn."""

    stages = stages_of(COMMITTEE)

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self._known_sizes: Sizes | None = None
        self._known_drawn: frozenset[str] | None = None

    def _inspect(self, envelope: Envelope) -> None:
        if envelope.stage == KEYS:
            self.check_roster(parse(KeysRequest, envelope.payload).roster, envelope)
            self._sizes()
        elif envelope.stage == CONTRIBUTE:
            request = parse(ContributeRequest, envelope.payload)
            self.check_roster(request.roster, envelope)
            self._check_committee(parse(Committee, request.committee))
        else:
            tally = parse(TallyRequest, envelope.payload)
            closed = parse(ClosedSet, tally.closed)
            self.check_roster(closed.roster, envelope)
            self._check_closed(closed)
        if self.stages[envelope.stage].members_only:
            self._check_drawn()

    def _answer(self, envelope: Envelope, contribution: Contribution | None) -> bytes:
        if envelope.stage == KEYS:
            return self._announcement()
        if envelope.stage == CONTRIBUTE:
            assert contribution is not None
            request = parse(ContributeRequest, envelope.payload)
            return self._contribute(request, contribution)
        return self._tally(parse(TallyRequest, envelope.payload))

    def _announcement(self) -> bytes:
        setting = self.setting
        return setting.keyring.announcement(
            self.own, setting.spec.cohort_id, setting.party, setting.identity
        ).SerializeToString()

    def _sizes(self) -> Sizes:
        """Derive c and t from the threat; the server is never asked for them."""
        if self._known_sizes is None:
            modulus = self.setting.spec.modulus
            sizes = committee_size(self.threat, self.roster_size)
            if modulus <= sizes.helpers or not is_prime(modulus):
                raise InputError("modulus", modulus, f"a prime above {sizes.helpers}")
            self._known_sizes = sizes
        return self._known_sizes

    def _drawn(self) -> frozenset[str] | None:
        """Name who may sit on the committee; None where nothing was to be checked."""
        if self._known_drawn is None and self.roster is not None:
            drawn = draw_order(self.context, list(self.roster))
            self._known_drawn = frozenset(drawn[: self._sizes().helpers])
        return self._known_drawn

    def _check_drawn(self) -> None:
        drawn = self._drawn()
        if drawn is not None and self.setting.party not in drawn:
            raise WrongContextError("this node is not on the committee")

    def _check_committee(self, committee: Committee) -> None:
        sizes, members = self._sizes(), list(committee.members)
        if len(members) != len(committee.keys) or len(set(members)) != len(members):
            raise MalformedMessageError("the committee is incomplete or repeats itself")
        if not sizes.threshold <= len(members) <= sizes.helpers:
            raise RefusalError(
                "committee-size",
                f"{len(members)} members; the threat asks for {sizes.threshold} to "
                f"{sizes.helpers}",
            )
        drawn = self._drawn()
        if drawn is not None and not drawn.issuperset(members):
            raise WrongContextError("the committee has members that were not drawn")
        self.check_keys(members, committee.keys)

    def _contribute(
        self, request: ContributeRequest, contribution: Contribution
    ) -> bytes:
        setting, users = self.setting, contribution.users
        committee = parse(Committee, request.committee)
        if users > MOST_USERS:
            raise InputError("users", users, f"at most {MOST_USERS}")
        if self.roster is not None and users > self.roster[setting.party]:
            raise RefusalError("too-many-users", "more users than were invited")
        shares = share_integer(
            contribution.value,
            self._sizes().threshold,
            len(committee.members),
            setting.spec.modulus,
        )
        salt = secrets.token_bytes(SALT_BYTES)
        own, pair = self.own, setting.keyring.pair
        head = seal_head(self.context, committee_digest(request.committee))
        head += name_tag(setting.party)
        sealed = [
            seal_share(pair(own, key.key), head + name_tag(member) + salt, share, users)
            for member, key, share in zip(
                committee.members, committee.keys, shares, strict=True
            )
        ]
        answer = ContributeAnswer(salt=salt, users=users, sealed=b"".join(sealed))
        answer.key.MergeFromString(self._announcement())
        return answer.SerializeToString()

    def _check_closed(self, closed: ClosedSet) -> None:
        """Refuse a set that is too small, repeats a node or names a stranger."""
        spec, contributors = self.setting.spec, list(closed.contributors)
        count = len(contributors)
        if len(closed.keys) != count or len(closed.users) != count:
            raise MalformedMessageError("the closed set is incomplete")
        if len(set(contributors)) != count:
            raise WrongContextError("the closed set names a node twice")
        if self.roster is not None and not set(contributors) <= self.roster.keys():
            raise WrongContextError("the closed set names a node not on the roster")
        if len({key.key for key in closed.keys}) != count:
            raise WrongContextError("two nodes of the closed set share a key")
        for party, users, capacity in zip(
            contributors,
            closed.users,
            self.check_keys(contributors, closed.keys),
            strict=True,
        ):
            self.check_claim(party, users, capacity)
        needed = least_contributors(self.threat, self.roster_size)
        if count < needed:
            raise RefusalError("set-too-small", f"{count} nodes; at least {needed}")
        total = sum(closed.users)
        quorum = max(spec.quorum, self.setting.limits.minimum_users)
        if total < quorum:
            raise RefusalError("quorum-not-met", f"{total} users; at least {quorum}")

    def _tally(self, request: TallyRequest) -> bytes:
        closed = parse(ClosedSet, request.closed)
        count = len(closed.contributors)
        salts = split(closed.salts, count, SALT_BYTES)
        seals = split(request.sealed, count, SEAL_BYTES)
        head = seal_head(self.context, closed.committee)
        tail, own = name_tag(self.setting.party), self.own
        pair = self.setting.keyring.pair
        total, unreadable = 0, []
        for party, key, salt, users, sealed in zip(
            closed.contributors, closed.keys, salts, closed.users, seals, strict=True
        ):
            info = head + name_tag(party) + tail + salt
            opened = open_share(pair(own, key.key), info, sealed)
            # The number of users inside the seal is the contributor's word; the one
            # outside, on which the quorum was checked, is the server's.
            if opened is None or opened[1] != users:
                unreadable.append(party)
            else:
                total += opened[0]
        if unreadable:
            complaint = Complaint(contributors=unreadable)
            return TallyAnswer(complaint=complaint).SerializeToString()
        return TallyAnswer(total=total % self.setting.spec.modulus).SerializeToString()

    def _forget(self) -> None:
        """Nothing is held between stages but the key pair."""

    def _own_state(self) -> bytes:
        return b""

    def _resume_own(self, body: bytes) -> None:
        if body:
            raise MalformedMessageError("a committee session keeps nothing of its own")
