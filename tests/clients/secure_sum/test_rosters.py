"""What a client refuses when masks come off or rosters change (rule 2)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.lying_server import FIRST, LYING, fresh, refusal
from tests.support.secure_sums import NODE_BACKENDS as BACKENDS
from tests.support.secure_sums import (
    Enrolment,
    asks,
    forged,
    names,
)
from wallflower.protocol.errors import (
    AuthenticationError,
    MalformedMessageError,
    ProtocolError,
    WallflowerError,
    WrongContextError,
)
from wallflower.protocol.secure_sum.context import (
    context_of,
    read_roster,
    roster_bytes,
    roster_digest,
    unwrap,
    wrap,
)
from wallflower.protocol.secure_sum.session import Ask
from wallflower.protocol.wire import sealed_pb2
from wallflower.protocol.wire import secure_sum_pb2 as wire

GONE = ("mask", "node-00005")

FIRST_REQUEST: dict[str, Any] = {
    "secagg-plus": wire.AdvertiseRequest,
    "sealed": sealed_pb2.SealRequest,
}

# -- rule 2: secagg-plus unmasking -------------------------------------------------


def unmask_with(change: Callable[[wire.UnmaskRequest], object]) -> WallflowerError:
    cohort = fresh("secagg-plus", 8)
    body = asks(cohort, "unmask").messages["node-00000"]
    return refusal(cohort, "node-00000", forged(body, wire.UnmaskRequest, change))


def test_both_kinds_of_share_of_one_neighbour_are_never_given() -> None:
    error = unmask_with(lambda request: request.dropped.append(request.present[0]))
    assert "both kinds" in str(error)


def test_a_survivor_relabelled_as_dropped_is_refused() -> None:
    def relabel(request: wire.UnmaskRequest) -> None:
        request.dropped.append(request.present.pop())

    assert "differ" in str(unmask_with(relabel))


def test_a_node_listed_as_dropped_itself_refuses() -> None:
    def drop_me(request: wire.UnmaskRequest) -> None:
        roster = {p: 1 for p in names(8) if p != "node-00000"}
        request.survivors.CopyFrom(
            wire.SurvivorSet(parties=7, users=7, roster=roster_bytes(roster))
        )

    assert "listed as dropped" in str(unmask_with(drop_me))


def test_shares_of_a_neighbour_listed_twice_are_refused() -> None:
    error = unmask_with(lambda request: request.present.append(request.present[0]))
    assert "twice" in str(error)


def test_shares_of_a_stranger_are_refused() -> None:
    error = unmask_with(lambda request: request.present.append(99))
    assert "not those that shared" in str(error)


def test_a_survivor_with_more_users_than_it_swore_is_refused() -> None:
    def inflate(request: wire.UnmaskRequest) -> None:
        roster = {**names(8), "node-00003": 2}
        request.survivors.CopyFrom(
            wire.SurvivorSet(parties=8, users=9, roster=roster_bytes(roster))
        )

    assert "cannot stand for 2 users" in str(unmask_with(inflate))


def test_masks_do_not_come_off_below_the_quorum() -> None:
    """Everything else about the smaller set is as it would be if two had vanished."""
    cohort = fresh("secagg-plus", 8, quorum=7)
    body = asks(cohort, "unmask").messages["node-00000"]
    neighbours = cohort.clients["node-00000"].memory.request.neighbours  # type: ignore[attr-defined]

    def shrink(request: wire.UnmaskRequest) -> None:
        request.dropped.extend(request.present.pop() for _ in range(2))
        gone = {neighbours[position] for position in request.dropped}
        roster = {party: 1 for party in names(8) if party not in gone}
        request.survivors.CopyFrom(
            wire.SurvivorSet(parties=6, users=6, roster=roster_bytes(roster))
        )

    error = refusal(cohort, "node-00000", forged(body, wire.UnmaskRequest, shrink))
    assert getattr(error, "code", "") == "quorum-not-met"


def test_survivors_that_too_few_neighbours_confirmed_are_refused() -> None:
    cohort = fresh("secagg-plus", 8, threat=LYING, enrolment=Enrolment())
    body = asks(cohort, "unmask").messages["node-00000"]

    def fewer(request: wire.UnmaskRequest) -> None:
        del request.confirmed[2:], request.signatures[2:]

    error = refusal(cohort, "node-00000", forged(body, wire.UnmaskRequest, fewer))
    assert isinstance(error, AuthenticationError)


def test_survivors_other_than_those_confirmed_are_refused() -> None:
    """The server shows one set for signatures and asks to unmask another."""
    cohort = fresh("secagg-plus", 8, threat=LYING, enrolment=Enrolment())
    body = asks(cohort, "unmask").messages["node-00000"]

    def other_set(request: wire.UnmaskRequest) -> None:
        victim = request.present.pop()
        request.dropped.append(victim)
        del request.confirmed[-1:], request.signatures[-1:]
        gone = cohort.clients["node-00000"].memory.request.neighbours[victim]  # type: ignore[attr-defined]
        roster = {party: 1 for party in names(8) if party != gone}
        request.survivors.CopyFrom(
            wire.SurvivorSet(parties=7, users=7, roster=roster_bytes(roster))
        )

    error = refusal(cohort, "node-00000", forged(body, wire.UnmaskRequest, other_set))
    assert "not those confirmed" in str(error)


def test_a_forged_confirmation_is_refused() -> None:
    cohort = fresh("secagg-plus", 8, threat=LYING, enrolment=Enrolment())
    body = asks(cohort, "unmask").messages["node-00000"]

    def forge(request: wire.UnmaskRequest) -> None:
        request.signatures[0] = request.signatures[1]

    error = refusal(cohort, "node-00000", forged(body, wire.UnmaskRequest, forge))
    assert isinstance(error, AuthenticationError)


def test_a_neighbour_that_is_not_in_the_sum_confirms_nothing() -> None:
    cohort = fresh("secagg-plus", 12, threat=LYING, enrolment=Enrolment())
    step = cohort.server.start()
    while isinstance(step, Ask) and step.stage != "unmask":
        step = cohort.step(
            step, lambda stage, party: (stage, party) != GONE, lambda stage, party: True
        )
    assert isinstance(step, Ask)
    body = step.messages["node-00000"]

    def confirmed_by_the_gone(request: wire.UnmaskRequest) -> None:
        request.confirmed[-1] = request.dropped[0]

    error = refusal(
        cohort, "node-00000", forged(body, wire.UnmaskRequest, confirmed_by_the_gone)
    )
    assert "not present" in str(error)


def test_unmasking_without_confirmation_is_refused_by_a_malicious_setting() -> None:
    cohort = fresh("secagg-plus", 8, threat=LYING, enrolment=Enrolment())
    asks(cohort, "confirm")
    context = cohort.server.context  # type: ignore[attr-defined]
    survivor_set = wire.SurvivorSet(parties=8, users=8, roster=roster_bytes(names(8)))
    payload = wire.UnmaskRequest(survivors=survivor_set, present=range(7))
    body = wrap(
        wire.STAGE_UNMASK, context, "", "node-00000", payload.SerializeToString()
    )
    assert "skipped" in str(refusal(cohort, "node-00000", body))


# -- rule 2: the roster stays ------------------------------------------------------


@pytest.mark.parametrize(
    ("backend", "stage", "kind"),
    [
        ("secagg-plus", "share", wire.ShareRequest),
        ("sealed", "open", sealed_pb2.OpenRequest),
    ],
)
def test_a_roster_that_changed_between_stages_is_refused(
    backend: str, stage: str, kind: Any
) -> None:
    cohort = fresh(backend)
    body = asks(cohort, stage, "node-00000").messages["node-00000"]
    roster = roster_bytes({**names(6), "sybil": 1})
    context = context_of(cohort.spec, roster_digest(roster), 7)
    request = kind.FromString(unwrap(body).payload)
    request.roster.CopyFrom(
        wire.RosterNote(digest=roster_digest(roster), size=7, roster=roster)
    )
    envelope = unwrap(body)
    other = wrap(envelope.stage, context, "", "node-00000", request.SerializeToString())
    error = refusal(cohort, "node-00000", other)
    assert isinstance(error, WrongContextError)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_roster_without_this_node_or_without_its_list_is_refused(
    backend: str,
) -> None:
    kind = FIRST_REQUEST[backend]
    field = "invited" if backend == "secagg-plus" else "roster"
    for roster, told in ((roster_bytes({"a": 1, "b": 1}), True), (b"", False)):
        cohort = fresh(backend)
        body = asks(cohort, FIRST[backend]).messages["node-00000"]
        digest = roster_digest(roster)
        note = wire.RosterNote(digest=digest, size=2, roster=roster if told else b"")
        payload = kind(**{field: note}).SerializeToString()
        envelope = unwrap(body)
        other = wrap(
            envelope.stage,
            context_of(cohort.spec, digest, 2),
            "",
            "node-00000",
            payload,
        )
        assert isinstance(refusal(cohort, "node-00000", other), ProtocolError)


# -- names -------------------------------------------------------------------------

LONG_NAME = "x" * 70_000


def test_a_neighbour_with_a_name_over_64_kib_is_a_named_refusal() -> None:
    cohort = fresh("secagg-plus", 80)
    body = asks(cohort, "share").messages["node-00000"]

    def rename(request: wire.ShareRequest) -> None:
        request.neighbours[0] = LONG_NAME

    error = refusal(cohort, "node-00000", forged(body, wire.ShareRequest, rename))
    assert isinstance(error, MalformedMessageError)


def test_a_roster_with_a_name_over_64_kib_is_a_named_refusal() -> None:
    with pytest.raises(MalformedMessageError, match="70000 characters"):
        read_roster(roster_bytes({LONG_NAME: 1, "a": 1}))


@pytest.mark.parametrize(("nodes", "lying"), [(8, False), (70, True)])
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_roster_that_is_not_shown_where_it_must_be_is_refused(
    backend: str, nodes: int, lying: bool
) -> None:
    options: dict[str, Any] = {"threat": LYING, "enrolment": Enrolment()}
    cohort = fresh(backend, nodes, **(options if lying else {}))
    party, body = next(iter(asks(cohort, FIRST[backend]).messages.items()))

    def hide(request: Any) -> None:
        note = request.invited if backend == "secagg-plus" else request.roster
        note.roster = b""

    error = refusal(cohort, party, forged(body, FIRST_REQUEST[backend], hide))
    assert "the roster is missing" in str(error)
