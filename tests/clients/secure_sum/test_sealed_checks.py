"""Under whose key a node seals where the server may lie."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from tests.support.lying_server import LYING, refusal
from tests.support.seated_sums import Person, SeatedRun
from tests.support.secure_sums import (
    Cohort,
    Enrolment,
    asks,
    cohort_spec,
    deal_key,
    names,
    open_cohort,
    run_dealing,
)
from wallflower.clients.secure_sum.keyring import ClientKeyring
from wallflower.clients.secure_sum.limits import ClientLimits
from wallflower.protocol.errors import RefusalError, WrongContextError
from wallflower.protocol.secure_sum.session import Contribution, KeyReady
from wallflower.protocol.secure_sum.threat import Threat
from wallflower.strategy.secure_sum import ServerKeyring
from wallflower.strategy.secure_sum.contributions import SeatTerms

ENROLMENT = Enrolment()
NODE = "node-00005"


def sealed_under(
    dealers: int, nodes: int, threat: Threat = LYING, limits: ClientLimits | None = None
) -> Cohort:
    """A cohort of `nodes` whose key was dealt among the first `dealers` of them."""
    keyrings: dict[str, ClientKeyring] = {}
    server = ServerKeyring("run-1")
    dealing = deal_key(
        "run-1", threat, names(dealers), keyrings, server, enrolment=ENROLMENT
    )
    assert isinstance(run_dealing(dealing), KeyReady)
    parties = names(nodes)
    return open_cohort(
        cohort_spec("sealed", parties, threat=threat),
        parties,
        enrolment=ENROLMENT,
        limits=limits,
        keyrings=keyrings,
        server_keyring=server,
    )


@pytest.mark.parametrize(("dealers", "nodes"), [(2, 20), (10, 11), (20, 30)])
def test_a_key_dealt_among_fewer_than_withstand_the_cohorts_colluders_is_refused(
    dealers: int, nodes: int
) -> None:
    cohort = sealed_under(dealers, nodes)
    error = refusal(cohort, NODE, asks(cohort, "seal").messages[NODE])
    assert isinstance(error, RefusalError)
    assert error.code == "dealing-too-small"


@pytest.mark.parametrize(("dealers", "nodes"), [(11, 20), (20, 20), (20, 11)])
def test_a_key_is_taken_that_as_many_colluders_could_not_have_made(
    dealers: int, nodes: int
) -> None:
    cohort = sealed_under(dealers, nodes)
    body = asks(cohort, "seal").messages[NODE]
    assert cohort.clients[NODE].inspect(body).answer(Contribution(1, 1)).body


@pytest.mark.parametrize(("least", "taken"), [(10, True), (11, False)])
def test_a_node_that_knows_how_many_collude_anywhere_says_among_how_many(
    least: int, taken: bool
) -> None:
    """So that nodes which only poll can be many more than those that deal."""
    limits = ClientLimits(minimum_parties=least)
    cohort = sealed_under(10, 30, limits=limits)
    body = asks(cohort, "seal").messages[NODE]
    if taken:
        assert cohort.clients[NODE].inspect(body).answer(Contribution(1, 1)).body
    else:
        error = refusal(cohort, NODE, body)
        assert isinstance(error, RefusalError)
        assert error.code == "cohort-too-small"


def test_a_verified_key_is_refused_in_a_cohort_that_must_withstand_more() -> None:
    """What was verified once is remembered, for the threat it was dealt for."""
    first = sealed_under(8, 8)
    body = asks(first, "seal").messages[NODE]
    assert first.clients[NODE].inspect(body).answer(Contribution(1, 1)).body
    harder = replace(LYING, corrupt=Fraction(1, 9))  # one node of eight as before
    spec = cohort_spec("sealed", first.parties, threat=harder, cohort_id="second")
    keyring: ServerKeyring = first.server.opening.keyring  # type: ignore[attr-defined]
    assert keyring.dealt is not None
    keyring.dealt.threat = harder  # so the lying server says
    second = open_cohort(
        spec,
        first.parties,
        enrolment=ENROLMENT,
        keyrings=first.keyrings,
        server_keyring=keyring,
    )
    error = refusal(second, NODE, asks(second, "seal").messages[NODE])
    assert isinstance(error, WrongContextError)
    assert "another threat" in str(error)


# --- People who arrive: whose key is it?


class ColludersAsTrustees(SeatedRun):
    """A lying server whose trustees are enrolled visitors that work with it."""

    def take_key_of(self, people: list[Person]) -> None:
        """Have people who came to be measured make the key."""
        self.trustees = {one.name: 1 for one in people}
        self.trustee_rings, self.ring = {}, ServerKeyring(self.run_id)
        assert isinstance(run_dealing(self._dealing()), KeyReady)


def seat_under(
    run: SeatedRun, person: Person, limits: ClientLimits | None = None
) -> bytes:
    """Seat a person under the run's key, and return what they answer."""
    request = SeatTerms(run.cohort().terms, run.trust).request_for(person.name)
    return run.answer(person, request, limits=limits)


def trusting(*trustees: str) -> ClientLimits:
    return ClientLimits(trustees=frozenset(trustees))


def test_colluding_visitors_are_no_trustees_although_they_are_enrolled() -> None:
    """They would open one person's contribution, and nobody would have noticed."""
    run = ColludersAsTrustees("enrolled", lying=True)
    known = run.limits
    run.take_key_of([run.person() for _ in range(5)])
    for limits in (known, ClientLimits()):
        with pytest.raises(RefusalError) as caught:
            seat_under(run, run.person(), limits)
        assert caught.value.code == "trustees-not-known"


def test_where_people_are_invited_whoever_is_enrolled_is_a_trustee() -> None:
    run = SeatedRun("invited", lying=True)
    assert seat_under(run, run.person(), ClientLimits())
    with pytest.raises(RefusalError) as caught:
        seat_under(run, run.person(), trusting("ann", "ben"))
    assert caught.value.code == "trustees-not-known"


@pytest.mark.parametrize(("named", "taken"), [(5, True), (10, True), (11, False)])
def test_a_key_is_of_as_many_trustees_as_withstand_all_colluders_among_those_named(
    named: int, taken: bool
) -> None:
    """Five trustees withstand one colluder; among eleven there may be two."""
    run = SeatedRun("enrolled", lying=True)
    person, limits = run.person(), trusting(*names(named))
    if taken:
        assert seat_under(run, person, limits)
        return
    with pytest.raises(RefusalError) as caught:
        seat_under(run, person, limits)
    assert caught.value.code == "dealing-too-small"
