"""`committee`, a node's side: share once, and as a member add up and answer once.

A node shares its integer in ℤ_m itself among the committee, each share sealed for one
member together with the node's number of users, and is done. A member opens its seals
of the closed set, checks the set and the quorum, and gives one number. See
docs/secure-sums.md for the protocol and what each party sees.
"""

from __future__ import annotations

import secrets

from clients.secure_sum.machine import ClientMachine
from protocol.cohort_context import draw_order
from protocol.committee_seals import (
    MOST_USERS,
    SEAL_BYTES,
    committee_digest,
    open_share,
    seal_head,
    seal_share,
    split,
)
from protocol.encoding import name_tag
from protocol.errors import (
    InputError,
    MalformedMessageError,
    RefusalError,
    WrongContextError,
)
from protocol.party_keys import check_lengths
from protocol.primes import is_prime
from protocol.sealing import SALT_BYTES
from protocol.session import Contribution
from protocol.shamir import share_integer
from protocol.stages import CONTRIBUTE, KEYS, TALLY
from protocol.sum_envelope import parse
from protocol.threat import Sizes, committee_size, least_contributors
from protocol.wire.secure_sum_pb2 import (
    ClosedSet,
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

    stages = (KEYS, CONTRIBUTE, TALLY)
    value_stage = CONTRIBUTE
    roster_stages = stages

    def _inspect(self, envelope: Envelope) -> None:
        if envelope.stage == KEYS:
            self.check_roster(parse(KeysRequest, envelope.payload).roster, envelope)
            self._sizes()
            self._check_drawn()
        elif envelope.stage == CONTRIBUTE:
            request = parse(ContributeRequest, envelope.payload)
            self.check_roster(request.roster, envelope)
            self._check_committee(request)
        else:
            tally = parse(TallyRequest, envelope.payload)
            closed = parse(ClosedSet, tally.closed)
            self.check_roster(closed.roster, envelope)
            self._check_drawn()
            self._check_closed(closed)

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
        modulus = self.setting.spec.modulus
        sizes = committee_size(self.threat, self.roster_size)
        if modulus <= sizes.helpers or not is_prime(modulus):
            raise InputError("modulus", modulus, f"a prime above {sizes.helpers}")
        return sizes

    def _drawn(self) -> list[str] | None:
        """Name who may sit on the committee; None where nothing was to be checked."""
        if self.roster is None:
            return None
        drawn = draw_order(self.context, list(self.roster))
        return drawn[: self._sizes().helpers]

    def _check_drawn(self) -> None:
        drawn = self._drawn()
        if drawn is not None and self.setting.party not in drawn:
            raise WrongContextError("this node is not on the committee")

    def _check_committee(self, request: ContributeRequest) -> None:
        sizes, members = self._sizes(), list(request.members)
        if len(members) != len(request.keys) or len(set(members)) != len(members):
            raise MalformedMessageError("the committee is incomplete or repeats itself")
        if not sizes.threshold <= len(members) <= sizes.helpers:
            raise RefusalError(
                "committee-size",
                f"{len(members)} members; the threat asks for {sizes.threshold} to "
                f"{sizes.helpers}",
            )
        drawn = self._drawn()
        if drawn is not None and not set(members) <= set(drawn):
            raise WrongContextError("the committee has members that were not drawn")
        keyring, cohort_id = self.setting.keyring, self.setting.spec.cohort_id
        for member, key in zip(members, request.keys, strict=True):
            check_lengths(key)
            keyring.capacity(key, cohort_id, member, self.setting.trust)

    def _contribute(
        self, request: ContributeRequest, contribution: Contribution
    ) -> bytes:
        setting, sizes = self.setting, self._sizes()
        if contribution.users > MOST_USERS:
            raise InputError("users", contribution.users, f"at most {MOST_USERS}")
        if self.roster is not None and contribution.users > self.roster[setting.party]:
            raise RefusalError("too-many-users", "more users than were invited")
        shares = share_integer(
            contribution.value,
            sizes.threshold,
            len(request.members),
            setting.spec.modulus,
        )
        salt = secrets.token_bytes(SALT_BYTES)
        committee = committee_digest(request.members, request.keys)
        head = seal_head(self.context, committee) + name_tag(setting.party)
        sealed = [
            seal_share(
                setting.keyring.pair(self.own, key.key),
                head + name_tag(member) + salt,
                share,
                contribution.users,
            )
            for member, key, share in zip(
                request.members, request.keys, shares, strict=True
            )
        ]
        answer = ContributeAnswer(
            salt=salt, users=contribution.users, sealed=b"".join(sealed)
        )
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
        needed = least_contributors(self.threat, self.roster_size)
        if count < needed:
            raise RefusalError("set-too-small", f"{count} nodes; at least {needed}")
        users, quorum = (
            sum(closed.users),
            max(spec.quorum, self.setting.limits.minimum_users),
        )
        if users < quorum:
            raise RefusalError("quorum-not-met", f"{users} users; at least {quorum}")

    def _tally(self, request: TallyRequest) -> bytes:
        setting = self.setting
        closed = parse(ClosedSet, request.closed)
        count = len(closed.contributors)
        salts = split(closed.salts, count, SALT_BYTES)
        seals = split(request.sealed, count, SEAL_BYTES)
        head = seal_head(self.context, closed.committee)
        tail = name_tag(setting.party)
        total, unreadable = 0, []
        for party, key, salt, users, sealed in zip(
            closed.contributors, closed.keys, salts, closed.users, seals, strict=True
        ):
            self.check_claim(
                party,
                users,
                setting.keyring.capacity(
                    key, setting.spec.cohort_id, party, setting.trust
                ),
            )
            opened = open_share(
                setting.keyring.pair(self.own, key.key),
                head + name_tag(party) + tail + salt,
                sealed,
            )
            # The number of users inside the seal is the contributor's word; the one
            # outside, on which the quorum was checked, is the server's.
            if opened is None or opened[1] != users:
                unreadable.append(party)
            else:
                total += opened[0]
        if unreadable:
            complaint = Complaint(contributors=unreadable)
            return TallyAnswer(complaint=complaint).SerializeToString()
        return TallyAnswer(total=total % setting.spec.modulus).SerializeToString()

    def _forget(self) -> None:
        """Nothing is held between stages but the key pair."""

    def _own_state(self) -> bytes:
        return b""

    def _resume_own(self, body: bytes) -> None:
        if body:
            raise MalformedMessageError("a committee session keeps nothing of its own")
